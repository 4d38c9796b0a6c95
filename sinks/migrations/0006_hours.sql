-- Where GPU time went, added up by the hour: what gpu_time_latest says, for questions about weeks and months.

-- An hour is added up as a whole, anew whenever something of it was written. Its rows of the newest version count, and
-- no others: what an hour no longer has, the newest version does not name.
CREATE TABLE IF NOT EXISTS gpu_hours
(
    hour DateTime64(3, 'UTC'),
    cluster LowCardinality(String),
    team LowCardinality(String),
    category LowCardinality(String),
    class LowCardinality(String),
    code LowCardinality(String),
    gpu_ms Int64,
    wall_ms Int64,
    version DateTime64(3, 'UTC')                 -- when it was added up, by the store's clock
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, cluster, team, category, class, code);

CREATE OR REPLACE VIEW gpu_hours_latest AS
SELECT hour, cluster, team, category, class, code, gpu_ms, wall_ms
FROM gpu_hours FINAL
WHERE (hour, version) IN (SELECT hour, max(version) FROM gpu_hours GROUP BY hour);

-- Which hours were written to, and when last: written before their rows are.
CREATE TABLE IF NOT EXISTS gpu_hours_due
(
    hour DateTime64(3, 'UTC'),
    at DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY hour;

INSERT INTO gpu_hours_due SELECT hour, now64(3, 'UTC') FROM gpu_time GROUP BY hour;
