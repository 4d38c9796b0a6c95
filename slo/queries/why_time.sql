-- What the attempt's GPU time went into.
SELECT category, sum(gpu_ms) AS gpu_ms, sum(wall_ms) AS wall_ms
FROM gpu_time_latest
WHERE job_id = {job:String} AND attempt = {attempt:UInt32}
GROUP BY category
ORDER BY gpu_ms DESC, category
