-- Every revision of every verdict on a job, and whether it is the one in force.
SELECT
    attempt,
    loss,
    revision,
    status,
    class,
    code,
    summary,
    basis,
    confidence,
    node,
    device_index,
    rank,
    alternatives,
    advice,
    exclude_nodes,
    exclude_devices,
    lost_gpu_seconds,
    since_checkpoint_s,
    rule,
    catalog,
    toUnixTimestamp64Milli(ended_at) AS ended_ms,
    toUnixTimestamp64Milli(emitted) AS emitted_ms,
    (attempt, loss, revision) IN (SELECT attempt, loss, revision FROM attributions_latest WHERE job_id = {job:String})
        AS in_force
FROM attributions FINAL
WHERE job_id = {job:String}
ORDER BY attempt, loss, revision
LIMIT 1000
