-- Attempts by how they started, for each of several windows: in time, late, not before they failed, or not yet.
-- What the user cancelled, or a policy took away, before it started does not count. Who reports no start still reports
-- progress or exits: such an attempt began with its allocation (as far as events are kept).
WITH ran AS
(
    SELECT DISTINCT subject AS job_id, JSONExtractUInt(raw, 'data', 'attempt') AS attempt, 1 AS known
    FROM events_raw
    WHERE type IN ('faultlens.job.progress.v1', 'faultlens.job.rank_exited.v1')
        AND subject IN (SELECT job_id FROM attempts WHERE started_at IS NULL)
)
SELECT
    window,
    how,
    class,
    basis,
    count() AS attempts
FROM
(
    SELECT
        a.allocated_at IS NOT NULL AS placed,
        toUnixTimestamp64Milli(ifNull(a.allocated_at, toDateTime64(0, 3, 'UTC'))) AS allocated_ms,
        a.started_at IS NOT NULL OR r.known = 1 OR a.outcome = 'succeeded' AS began,
        if(a.started_at IS NOT NULL, toUnixTimestamp64Milli(assumeNotNull(a.started_at)), allocated_ms) AS began_ms,
        if(a.ended_at IS NULL, toUnixTimestamp64Milli(v.ended_at), toUnixTimestamp64Milli(assumeNotNull(a.ended_at))) AS ended_ms,
        a.ended_at IS NOT NULL OR v.basis != '' AS ended,
        multiIf(
            began AND placed AND began_ms - allocated_ms > {within:Int64}, 'late',
            began, 'in_time',
            a.outcome IN ('cancelled', 'preempted') OR v.class = 'user', 'out',
            ended, 'failed',
            NOT ended AND placed AND {as_of:Int64} - allocated_ms > {within:Int64}, 'waiting',
            'out'
        ) AS how,
        multiIf(
            began AND (placed OR a.started_at IS NOT NULL), began_ms,
            how = 'waiting', allocated_ms + {within:Int64},
            ended_ms
        ) AS at_ms,
        how IN ('failed', 'out') AS judged,
        if(judged, v.class, '') AS class,
        if(judged, v.basis, '') AS basis
    FROM attempts AS a
    LEFT JOIN ran AS r ON a.job_id = r.job_id AND a.attempt = r.attempt
    LEFT JOIN jobs AS j ON a.job_id = j.job_id
    LEFT JOIN (SELECT * FROM attributions_latest WHERE loss = 0) AS v ON a.job_id = v.job_id AND a.attempt = v.attempt
    WHERE ({cluster:String} = '' OR if(a.cluster = '', j.cluster, a.cluster) = {cluster:String})
        AND ({team:String} = '' OR j.team = {team:String})
        AND ({workload:String} = '' OR j.workload = {workload:String})
        AND ({pool:String} = '' OR (a.job_id, a.attempt) IN (SELECT job_id, attempt FROM attempt_pools WHERE pool = {pool:String}))
)
ARRAY JOIN
    {froms:Array(Int64)} AS from_ms,
    {tos:Array(Int64)} AS to_ms,
    arrayEnumerate({froms:Array(Int64)}) AS window
WHERE at_ms >= from_ms AND at_ms < to_ms
GROUP BY window, how, class, basis
ORDER BY window, how, class, basis
