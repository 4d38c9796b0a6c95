-- The trainings that held most GPU time in the window: what their wall time went into (time lost to failures of the
-- user's own left out), and how often hardware, drivers or the platform interrupted them.
SELECT
    h.job_id AS job_id,
    h.whose AS team,
    h.most_gpus AS gpus,
    h.attempts AS attempts,
    h.productive_ms AS productive_ms,
    h.unproductive_ms AS unproductive_ms,
    h.queued_ms AS queued_ms,
    f.interruptions AS interruptions
FROM
(
    SELECT
        job_id,
        max(team) AS whose,
        max(gpus) AS most_gpus,
        uniqExact(attempt) AS attempts,
        sum(gpu_ms) AS held_ms,
        sumIf(wall_ms, category = 'productive') AS productive_ms,
        sumIf(wall_ms, category NOT IN ('productive', 'queued') AND class != 'user' AND gpus > 0) AS unproductive_ms,
        sumIf(wall_ms, category = 'queued') AS queued_ms
    FROM gpu_time_latest
    WHERE hour >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND hour < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR cluster = {cluster:String})
        AND ({team:String} = '' OR team = {team:String})
    GROUP BY job_id
    ORDER BY held_ms DESC, job_id
    LIMIT 200
) AS h
INNER JOIN jobs AS j ON h.job_id = j.job_id
LEFT JOIN
(
    SELECT job_id, count() AS interruptions
    FROM attributions_latest
    WHERE class IN ('hardware', 'driver', 'platform')
        AND ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    GROUP BY job_id
) AS f ON h.job_id = f.job_id
WHERE j.workload = 'training'
ORDER BY h.held_ms DESC, job_id
LIMIT 10
