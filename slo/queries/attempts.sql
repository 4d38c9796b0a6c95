-- Attempts by what became of them and what that is charged to, for each of several windows; the end decides the window.
-- An end that nobody reported is known from its verdict. Who reports no start still reports progress or exits.
WITH ran AS
(
    SELECT DISTINCT subject AS job_id, JSONExtractUInt(raw, 'data', 'attempt') AS attempt, 1 AS known
    FROM events_raw
    WHERE type IN ('faultlens.job.progress.v1', 'faultlens.job.rank_exited.v1')
        AND subject IN (SELECT job_id FROM attempts WHERE started_at IS NULL)
)
SELECT
    window,
    outcome,
    started,
    serving,
    class,
    code,
    basis,
    count() AS attempts,
    sum(gpu_ms) AS gpu_ms
FROM
(
    SELECT
        if(a.ended_at IS NULL, toUnixTimestamp64Milli(v.ended_at), toUnixTimestamp64Milli(assumeNotNull(a.ended_at))) AS ended_ms,
        if(a.outcome = '', 'failed', a.outcome) AS outcome,
        a.started_at IS NOT NULL OR r.known = 1 OR a.outcome = 'succeeded' AS started,
        j.workload = 'inference' AS serving,
        v.class AS class,
        v.code AS code,
        v.basis AS basis,
        g.gpu_ms AS gpu_ms
    FROM attempts AS a
    LEFT JOIN ran AS r ON a.job_id = r.job_id AND a.attempt = r.attempt
    LEFT JOIN jobs AS j ON a.job_id = j.job_id
    LEFT JOIN (SELECT * FROM attributions_latest WHERE loss = 0) AS v ON a.job_id = v.job_id AND a.attempt = v.attempt
    LEFT JOIN
    (
        SELECT job_id, attempt, sum(gpu_ms) AS gpu_ms
        FROM gpu_time_latest
        WHERE hour < fromUnixTimestamp64Milli(arrayMax({tos:Array(Int64)}), 'UTC')
            AND job_id IN
            (
                SELECT job_id FROM job_facts
                WHERE fact = 'ended' AND time >= fromUnixTimestamp64Milli(arrayMin({froms:Array(Int64)}), 'UTC')
                UNION ALL
                SELECT job_id FROM attributions
                WHERE ended_at >= fromUnixTimestamp64Milli(arrayMin({froms:Array(Int64)}), 'UTC')
            )
        GROUP BY job_id, attempt
    ) AS g ON a.job_id = g.job_id AND a.attempt = g.attempt
    WHERE (a.ended_at IS NOT NULL OR v.basis != '')
        AND ({cluster:String} = '' OR if(a.cluster = '', j.cluster, a.cluster) = {cluster:String})
        AND ({team:String} = '' OR j.team = {team:String})
        AND ({workload:String} = '' OR j.workload = {workload:String})
        AND ({pool:String} = '' OR (a.job_id, a.attempt) IN (SELECT job_id, attempt FROM attempt_pools WHERE pool = {pool:String}))
)
ARRAY JOIN
    {froms:Array(Int64)} AS from_ms,
    {tos:Array(Int64)} AS to_ms,
    arrayEnumerate({froms:Array(Int64)}) AS window
WHERE ended_ms >= from_ms AND ended_ms < to_ms
GROUP BY window, outcome, started, serving, class, code, basis
ORDER BY window, outcome, started, serving, class, code, basis
