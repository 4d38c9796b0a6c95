-- Fault codes that nodes told of in the window, and not in the four weeks before it; injected ones are left out.
SELECT
    kind,
    code,
    sumIf(count, time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')) AS faults,
    uniqExactIf(node, time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')) AS nodes
FROM faults FINAL
WHERE synthetic = 0
    AND time >= fromUnixTimestamp64Milli({from:Int64} - 2419200000, 'UTC')
    AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR cluster = {cluster:String})
GROUP BY kind, code
HAVING faults > 0 AND countIf(time < fromUnixTimestamp64Milli({from:Int64}, 'UTC')) = 0
ORDER BY faults DESC, kind, code
LIMIT 20
