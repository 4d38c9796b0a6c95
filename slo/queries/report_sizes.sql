-- Attempts by how many GPUs they held at most (`up_to`; 0: more): for how long within the window, and how many failures
-- and survived losses of theirs hardware or drivers are charged with.
SELECT
    multiIf(gpus <= 8, 8, gpus <= 64, 64, gpus <= 512, 512, gpus <= 4096, 4096, 0) AS up_to,
    count() AS attempts,
    sum(held_ms) AS run_ms,
    sum(failures) AS failed
FROM
(
    SELECT job_id, attempt, max(gpus) AS gpus, sum(span_ms) AS held_ms
    FROM
    (
        SELECT
            job_id,
            attempt,
            gpus,
            least(toUnixTimestamp64Milli(stop), {to:Int64}) - greatest(toUnixTimestamp64Milli(start), {from:Int64}) AS span_ms
        FROM gpu_time_latest
        WHERE hour >= fromUnixTimestamp64Milli({from:Int64} - 3600000, 'UTC')
            AND hour < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
            AND category != 'queued'
            AND gpus > 0
            AND ({cluster:String} = '' OR cluster = {cluster:String})
            AND ({team:String} = '' OR team = {team:String})
    )
    WHERE span_ms > 0
    GROUP BY job_id, attempt
) AS h
LEFT JOIN
(
    SELECT job_id, attempt, count() AS failures
    FROM attributions_latest
    WHERE class IN ('hardware', 'driver')
        AND ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    GROUP BY job_id, attempt
) AS f ON h.job_id = f.job_id AND h.attempt = f.attempt
GROUP BY up_to
ORDER BY up_to = 0, up_to
