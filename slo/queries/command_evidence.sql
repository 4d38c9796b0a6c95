-- The faults that an incident rests on, with the driver's own lines.
SELECT
    id,
    source,
    node,
    kind,
    code,
    message,
    toUnixTimestamp64Milli(time) AS at_ms
FROM faults FINAL
WHERE has({evidence:Array(String)}, id)
ORDER BY time, id
LIMIT 50
