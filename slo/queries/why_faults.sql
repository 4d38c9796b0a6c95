-- What the attempt's nodes reported in its evidence window.
SELECT
    node,
    toUnixTimestamp64Milli(time) AS at_ms,
    kind,
    code,
    subcode,
    device_index,
    count,
    message
FROM faults FINAL
WHERE node IN {nodes:Array(String)}
    AND synthetic = 0
    AND time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
ORDER BY at_ms, node, id
LIMIT 200
