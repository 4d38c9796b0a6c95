-- Trouble of jobs that have not failed, the newest first; what is over since long is left out.
SELECT
    job_id,
    attempt,
    kind,
    node,
    device_index,
    class,
    code,
    summary,
    basis,
    ratio,
    toUnixTimestamp64Milli(since) AS since_ms,
    toUnixTimestamp64Milli(until) AS until_ms
FROM findings FINAL
WHERE ({cluster:String} = '' OR cluster = {cluster:String})
    AND ({node:String} = '' OR node = {node:String})
    AND ifNull(until, emitted) >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
ORDER BY since_ms DESC, job_id, attempt, kind
LIMIT {limit:UInt32}
