-- What was tried for an incident, and what became of it, in the order of its ends.
SELECT
    action,
    state,
    actuator,
    reason,
    toUnixTimestamp64Milli(at) AS at_ms
FROM results FINAL
WHERE state IN ('succeeded', 'failed', 'refused', 'expired')
    AND command_id IN (SELECT command_id FROM commands FINAL WHERE incident_id = {incident:String} AND mode = 'live')
ORDER BY at, id
LIMIT 64
