-- What became of a command, in the order in which it was said.
SELECT
    state,
    actuator,
    reason,
    toUnixTimestamp64Milli(at) AS at_ms
FROM results FINAL
WHERE command_id = {command:String}
ORDER BY at, id
LIMIT 200
