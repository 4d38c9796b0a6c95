-- What is known of a job as a whole.
SELECT
    job_id,
    cluster,
    user,
    team,
    name,
    workload,
    gpus,
    nodes,
    toUnixTimestamp64Milli(submitted_at) AS submitted_ms,
    pending_reason
FROM jobs
WHERE job_id = {job:String}
