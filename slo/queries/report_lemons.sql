-- Nodes that ended at least two attempts in the window, and none in the four weeks before it.
SELECT
    node,
    countIf(ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')) AS failures,
    arraySort(groupUniqArrayIf(code, ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC'))) AS causes
FROM attributions_latest
WHERE node != ''
    AND class IN ('hardware', 'driver')
    AND ended_at >= fromUnixTimestamp64Milli({from:Int64} - 2419200000, 'UTC')
    AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR cluster = {cluster:String})
GROUP BY node
HAVING failures >= 2 AND countIf(ended_at < fromUnixTimestamp64Milli({from:Int64}, 'UTC')) = 0
ORDER BY failures DESC, node
LIMIT 20
