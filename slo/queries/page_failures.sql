-- The newest verdicts in force, narrowed to a cluster, class, cause, node, job or time. Of an array or a heterogeneous
-- job its tasks and components are meant too, as Slurm names them: 1234_7, 1234+1.
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
        AND (
            {job:String} = ''
            OR job_id = {job:String}
            OR startsWith(job_id, concat({job:String}, '_'))
            OR startsWith(job_id, concat({job:String}, '+'))
        )
        AND ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    ORDER BY ended_at DESC, job_id, attempt, loss
    LIMIT {limit:UInt32}
) AS v
LEFT JOIN jobs AS j ON v.job_id = j.job_id
ORDER BY ended_ms DESC, job_id, attempt, loss
