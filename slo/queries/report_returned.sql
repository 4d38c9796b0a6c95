-- Nodes that were replaced or taken away in the window, and when each next took work (0: not yet).
SELECT
    t.node AS node,
    n.gpu_family AS family,
    t.what AS what,
    toUnixTimestamp64Milli(t.at) AS left_ms,
    toUnixTimestamp64Milli(arrayFirst(time -> time > t.at, b.times)) AS back_ms
FROM
(
    SELECT subject AS node, time AS at, JSONExtractString(raw, 'data', 'action') AS what,
        JSONExtractString(raw, 'data', 'cluster') AS of_cluster
    FROM events_raw FINAL
    WHERE type = 'faultlens.node.action.v1'
        AND time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND what IN ('replace', 'remove')
        AND ({cluster:String} = '' OR of_cluster = {cluster:String})
) AS t
LEFT JOIN nodes AS n ON t.node = n.node
LEFT JOIN
(
    SELECT cluster, node, arraySort(groupArray(since)) AS times
    FROM node_states FINAL
    WHERE state IN ('available', 'degraded') AND since > fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    GROUP BY cluster, node
) AS b ON t.node = b.node AND t.of_cluster = b.cluster
ORDER BY node, left_ms
