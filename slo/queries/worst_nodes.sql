-- Nodes by the failures charged to them, with what those cost and which of their devices were to blame.
SELECT
    node,
    any(pool) AS pool,
    count() AS failures,
    groupArrayIf(device_index, device_index IS NOT NULL) AS devices,
    sum(lost_gpu_ms) AS gpu_ms,
    arraySort(groupUniqArray(code)) AS causes
FROM
(
    SELECT
        v.node AS node,
        v.device_index AS device_index,
        v.code AS code,
        toInt64(round(v.lost_gpu_seconds * 1000)) AS lost_gpu_ms,
        n.pool AS pool
    FROM attributions_latest AS v
    LEFT JOIN nodes AS n ON v.node = n.node
    LEFT JOIN jobs AS j ON v.job_id = j.job_id
    WHERE v.node != ''
        AND v.ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND v.ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR v.cluster = {cluster:String})
        AND ({team:String} = '' OR j.team = {team:String})
)
GROUP BY node
ORDER BY failures DESC, gpu_ms DESC, node
