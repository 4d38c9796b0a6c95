-- Settled verdicts that were said after a time, in the order in which they were, with whose job it was.
SELECT
    v.job_id AS job_id,
    v.attempt AS attempt,
    v.loss AS loss,
    v.revision AS revision,
    v.status AS status,
    v.cluster AS cluster,
    v.class AS class,
    v.code AS code,
    v.summary AS summary,
    v.basis AS basis,
    v.node AS node,
    v.advice AS advice,
    v.exclude_nodes AS exclude_nodes,
    j.user AS user,
    j.team AS team,
    toUnixTimestamp64Milli(v.emitted) AS said_ms
FROM
(
    SELECT *
    FROM attributions FINAL
    WHERE status IN ('final', 'amended')
        AND (emitted, job_id, attempt, loss, revision)
            > (fromUnixTimestamp64Milli({after:Int64}, 'UTC'), {job:String}, {attempt:UInt32}, {loss:UInt32}, {revision:UInt32})
    ORDER BY emitted, job_id, attempt, loss, revision
    LIMIT {limit:UInt32}
) AS v
LEFT JOIN jobs AS j ON v.job_id = j.job_id
ORDER BY said_ms, job_id, attempt, loss, revision
