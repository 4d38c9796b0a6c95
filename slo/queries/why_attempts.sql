-- The attempts of a job, in their order.
SELECT
    attempt,
    node_names,
    toUnixTimestamp64Milli(allocated_at) AS allocated_ms,
    toUnixTimestamp64Milli(started_at) AS started_ms,
    toUnixTimestamp64Milli(ended_at) AS ended_ms,
    outcome,
    exit_code,
    signal,
    reason,
    message,
    preempted_by,
    label_class,
    label_by
FROM attempts
WHERE job_id = {job:String}
ORDER BY attempt
LIMIT 1000
