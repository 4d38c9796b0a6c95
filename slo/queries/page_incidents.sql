-- Incidents that are open, or were in a time, the newest first; with how many commands each has.
SELECT
    incident_id,
    cluster,
    phase,
    cause,
    severity,
    nodes,
    jobs,
    count,
    length(command_ids) AS commands,
    closed_because,
    toUnixTimestamp64Milli(first_seen) AS first_ms,
    toUnixTimestamp64Milli(last_seen) AS last_ms
FROM incidents_latest
WHERE ({cluster:String} = '' OR cluster = {cluster:String})
    AND ({node:String} = '' OR has(nodes, {node:String}))
    AND (phase != 'closed' OR last_seen >= fromUnixTimestamp64Milli({from:Int64}, 'UTC'))
ORDER BY phase = 'closed', first_ms DESC, incident_id
LIMIT {limit:UInt32}
