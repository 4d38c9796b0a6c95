-- The incident of a command as it stands.
SELECT
    incident_id,
    phase,
    cause,
    severity,
    nodes,
    rule,
    toUnixTimestamp64Milli(first_seen) AS first_ms,
    toUnixTimestamp64Milli(last_seen) AS last_ms,
    count,
    evidence,
    command_ids,
    jobs,
    waits_for,
    closed_because
FROM incidents_latest
WHERE incident_id = {incident:String}
