-- The last lines that an attempt's ranks and launcher left, as far as events are kept.
SELECT
    type,
    JSONExtractInt(raw, 'data', 'rank') AS rank,
    JSONExtractString(raw, 'data', 'node') AS node,
    JSONExtractString(raw, 'data', 'log_tail') AS log_tail,
    toUnixTimestamp64Milli(time) AS at_ms
FROM events_raw FINAL
WHERE subject = {job:String}
    AND type IN ('faultlens.job.rank_exited.v1', 'faultlens.job.ended.v1')
    AND JSONExtractUInt(raw, 'data', 'attempt') = {attempt:UInt32}
    AND JSONExtractString(raw, 'data', 'log_tail') != ''
ORDER BY at_ms, rank
LIMIT {limit:UInt32}
