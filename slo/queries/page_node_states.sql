-- The states that a node was in, the newest first.
SELECT
    cluster,
    state,
    planned,
    cause,
    gpus_total,
    gpus_allocatable,
    toUnixTimestamp64Milli(since) AS since_ms,
    toUnixTimestamp64Milli(until) AS until_ms
FROM node_state_spans
WHERE node = {node:String}
ORDER BY since_ms DESC, cluster
LIMIT {limit:UInt32}
