-- What the GPU time of each of a job's attempts went into, and to whom it is charged.
SELECT attempt, category, class, sum(gpu_ms) AS gpu_ms, sum(wall_ms) AS wall_ms
FROM gpu_time_latest
WHERE job_id = {job:String}
GROUP BY attempt, category, class
ORDER BY attempt, gpu_ms DESC, category, class
