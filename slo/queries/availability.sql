-- Node and GPU time (milliseconds) by the state that nodes were in, for each of several windows.
SELECT
    window,
    state,
    planned,
    cause,
    sum(span_ms) AS node_ms,
    sum(span_ms * gpus_total) AS gpu_ms,
    sum(span_ms * least(gpus_allocatable, gpus_total)) AS allocatable_ms
FROM
(
    SELECT
        window,
        state,
        planned,
        cause,
        gpus_total,
        gpus_allocatable,
        least(until_ms, to_ms) - greatest(since_ms, from_ms) AS span_ms
    FROM
    (
        SELECT
            state,
            planned,
            cause,
            gpus_total,
            gpus_allocatable,
            toUnixTimestamp64Milli(since) AS since_ms,
            ifNull(toUnixTimestamp64Milli(until), {as_of:Int64}) AS until_ms
        FROM node_state_spans
        WHERE ({cluster:String} = '' OR cluster = {cluster:String}) AND ({pool:String} = '' OR pool = {pool:String})
    )
    ARRAY JOIN
        {froms:Array(Int64)} AS from_ms,
        {tos:Array(Int64)} AS to_ms,
        arrayEnumerate({froms:Array(Int64)}) AS window
)
WHERE span_ms > 0
GROUP BY window, state, planned, cause
ORDER BY window, state, planned, cause
