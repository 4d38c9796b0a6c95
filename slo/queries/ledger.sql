-- What allocated GPU time went into, and what it is charged to, for each of several windows.
SELECT
    window,
    category,
    class,
    code,
    sum(span_ms) AS wall_ms,
    sum(if(category = 'queued', 0, span_ms * gpus)) AS gpu_ms
FROM
(
    SELECT
        window,
        category,
        class,
        code,
        gpus,
        least(stop_ms, to_ms) - greatest(start_ms, from_ms) AS span_ms
    FROM
    (
        SELECT
            category,
            class,
            code,
            gpus,
            toUnixTimestamp64Milli(start) AS start_ms,
            toUnixTimestamp64Milli(stop) AS stop_ms
        FROM gpu_time_latest
        WHERE hour >= fromUnixTimestamp64Milli(arrayMin({froms:Array(Int64)}) - 3600000, 'UTC')
            AND hour < fromUnixTimestamp64Milli(arrayMax({tos:Array(Int64)}), 'UTC')
            AND ({cluster:String} = '' OR cluster = {cluster:String})
            AND ({team:String} = '' OR team = {team:String})
            AND ({workload:String} = '' OR job_id IN (SELECT job_id FROM jobs WHERE workload = {workload:String}))
            AND ({pool:String} = '' OR (job_id, attempt) IN (SELECT job_id, attempt FROM attempt_pools WHERE pool = {pool:String}))
    )
    ARRAY JOIN
        {froms:Array(Int64)} AS from_ms,
        {tos:Array(Int64)} AS to_ms,
        arrayEnumerate({froms:Array(Int64)}) AS window
)
WHERE span_ms > 0
GROUP BY window, category, class, code
ORDER BY window, category, class, code
