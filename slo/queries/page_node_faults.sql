-- What a node told, the newest first.
SELECT
    kind,
    code,
    subcode,
    device_index,
    count,
    synthetic,
    message,
    toUnixTimestamp64Milli(time) AS at_ms
FROM faults FINAL
WHERE node = {node:String}
ORDER BY at_ms DESC, kind, code
LIMIT {limit:UInt32}
