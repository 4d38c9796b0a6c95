-- Attempts by how they started, for each of several windows: in time, late, not before they failed, or not yet.
-- What the user cancelled, or a policy took away, before it started does not count.
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
        toUnixTimestamp64Milli(ifNull(a.started_at, toDateTime64(0, 3, 'UTC'))) AS began_ms,
        if(a.ended_at IS NULL, toUnixTimestamp64Milli(v.ended_at), toUnixTimestamp64Milli(assumeNotNull(a.ended_at))) AS ended_ms,
        a.ended_at IS NOT NULL OR v.basis != '' AS ended,
        multiIf(
            a.started_at IS NOT NULL AND placed AND began_ms - allocated_ms > {within:Int64}, 'late',
            a.started_at IS NOT NULL, 'in_time',
            a.outcome = 'succeeded', 'in_time',
            a.outcome IN ('cancelled', 'preempted') OR v.class = 'user', 'out',
            ended, 'failed',
            NOT ended AND placed AND {as_of:Int64} - allocated_ms > {within:Int64}, 'waiting',
            'out'
        ) AS how,
        multiIf(
            a.started_at IS NOT NULL, began_ms,
            how = 'waiting', allocated_ms + {within:Int64},
            ended_ms
        ) AS at_ms,
        how IN ('failed', 'out') AS judged,
        if(judged, v.class, '') AS class,
        if(judged, v.basis, '') AS basis
    FROM attempts AS a
    LEFT JOIN jobs AS j ON a.job_id = j.job_id
    LEFT JOIN (SELECT * FROM attributions_latest WHERE loss = 0) AS v ON a.job_id = v.job_id AND a.attempt = v.attempt
    WHERE ({cluster:String} = '' OR a.cluster = {cluster:String})
        AND ({team:String} = '' OR j.team = {team:String})
)
ARRAY JOIN
    {froms:Array(Int64)} AS from_ms,
    {tos:Array(Int64)} AS to_ms,
    arrayEnumerate({froms:Array(Int64)}) AS window
WHERE at_ms >= from_ms AND at_ms < to_ms
GROUP BY window, how, class, basis
ORDER BY window, how, class, basis
