-- Of each kind of the attempt's own reports the first, the last and their number, as far as events are still kept.
SELECT
    type,
    good,
    restored,
    count() AS reports,
    argMin(step, time) AS first_step,
    argMax(step, time) AS last_step,
    argMin(rank, time) AS first_rank,
    argMin(node, time) AS first_node,
    argMin(status, time) AS first_status,
    toUnixTimestamp64Milli(min(time)) AS first_ms,
    toUnixTimestamp64Milli(max(time)) AS last_ms
FROM
(
    SELECT
        type,
        time,
        JSONExtractBool(raw, 'data', 'ok') AS good,
        JSONExtractBool(raw, 'data', 'restored') AS restored,
        JSONExtractInt(raw, 'data', 'step') AS step,
        JSONExtractInt(raw, 'data', 'rank') AS rank,
        JSONExtractString(raw, 'data', 'node') AS node,
        trimBoth(concat(
            JSONExtractString(raw, 'data', 'reason'),
            if(JSONHas(raw, 'data', 'exit_code'), concat(' exit code ', JSONExtractRaw(raw, 'data', 'exit_code')), ''),
            if(JSONHas(raw, 'data', 'signal'), concat(' signal ', JSONExtractRaw(raw, 'data', 'signal')), '')
        )) AS status
    FROM events_raw FINAL
    WHERE subject = {job:String}
        AND type IN ('faultlens.job.progress.v1', 'faultlens.job.checkpoint.v1', 'faultlens.job.rank_exited.v1')
        AND JSONExtractUInt(raw, 'data', 'attempt') = {attempt:UInt32}
)
GROUP BY type, good, restored
ORDER BY type, good, restored
