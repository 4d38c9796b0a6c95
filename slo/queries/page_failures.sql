-- The newest verdicts in force, narrowed to a cluster, class, cause, node or time.
SELECT
    v.job_id AS job_id,
    v.attempt AS attempt,
    v.loss AS loss,
    v.class AS class,
    v.code AS code,
    v.summary AS summary,
    v.basis AS basis,
    v.status AS status,
    v.rule AS rule,
    v.node AS node,
    v.device_index AS device_index,
    v.lost_gpu_seconds AS lost_gpu_seconds,
    toUnixTimestamp64Milli(v.ended_at) AS ended_ms,
    j.user AS user,
    j.team AS team
FROM
(
    SELECT *
    FROM attributions_latest
    WHERE ({cluster:String} = '' OR cluster = {cluster:String})
        AND ({class:String} = '' OR class = {class:String})
        AND ({code:String} = '' OR code = {code:String} OR startsWith(code, concat({code:String}, '.')))
        AND ({node:String} = '' OR node = {node:String})
        AND ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    ORDER BY ended_at DESC, job_id, attempt, loss
    LIMIT {limit:UInt32}
) AS v
LEFT JOIN jobs AS j ON v.job_id = j.job_id
ORDER BY ended_ms DESC, job_id, attempt, loss
