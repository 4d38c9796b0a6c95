-- When nodes were out without a plan, clipped to the window; states that follow each other are joined by the reader.
SELECT
    cluster,
    node,
    greatest(since_ms, {from:Int64}) AS from_ms,
    least(until_ms, {to:Int64}) AS to_ms
FROM
(
    SELECT
        cluster,
        node,
        toUnixTimestamp64Milli(since) AS since_ms,
        ifNull(toUnixTimestamp64Milli(until), {as_of:Int64}) AS until_ms
    FROM node_state_spans
    WHERE state IN ('blocked', 'draining', 'down', 'silent', 'maintenance')
        AND planned = 0
        AND ({cluster:String} = '' OR cluster = {cluster:String})
)
WHERE from_ms < to_ms
ORDER BY cluster, node, from_ms
