-- From when to when an incident went on, by its id: one that faultlens opened, or one that somebody announced (these as
-- long as events are kept). `ended_ms` 0: it goes on.
SELECT
    cluster,
    cause,
    toUnixTimestamp64Milli(first_seen) AS began_ms,
    if(phase = 'closed', toUnixTimestamp64Milli(greatest(last_seen, emitted)), 0) AS ended_ms,
    nodes
FROM incidents_latest
WHERE incident_id = {incident:String}
UNION ALL
SELECT
    subject AS cluster,
    'platform' AS cause,
    toUnixTimestamp64Milli(min(time)) AS began_ms,
    if(argMax(phase, time) = 'ended', toUnixTimestamp64Milli(max(time)), 0) AS ended_ms,
    arraySort(groupUniqArrayArray(scoped)) AS nodes
FROM
(
    SELECT
        subject,
        time,
        JSONExtractString(raw, 'data', 'phase') AS phase,
        JSONExtract(raw, 'data', 'scope', 'nodes', 'Array(String)') AS scoped
    FROM events_raw FINAL
    WHERE type = 'faultlens.platform.incident.v1' AND JSONExtractString(raw, 'data', 'incident_id') = {incident:String}
)
GROUP BY subject
ORDER BY cluster
