-- Where GPU time went, and where the objectives stand.

-- A row is the part of a ledger record that lies in one hour. A later record replaces what earlier ones said about the
-- same time of the same attempt; gpu_time_latest carries that out, exactly.
CREATE TABLE IF NOT EXISTS gpu_time
(
    job_id String,
    attempt UInt32,
    hour DateTime64(3, 'UTC'),
    revision UInt32,
    start DateTime64(3, 'UTC'),
    stop DateTime64(3, 'UTC'),
    cluster LowCardinality(String),
    team LowCardinality(String),
    category LowCardinality(String),
    gpus UInt32,
    class LowCardinality(String),
    code LowCardinality(String),
    emitted DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(hour)
ORDER BY (job_id, attempt, hour, revision, start);

-- The time of each attempt is cut at every border of a record in its hour; each piece goes to the record of the highest
-- revision that covers it. `gpu_ms` is 0 for `queued`, which is wall time.
CREATE OR REPLACE VIEW gpu_time_latest AS
SELECT
    job_id,
    attempt,
    hour,
    piece.1 AS start,
    piece.2 AS stop,
    said.4 AS cluster,
    said.5 AS team,
    said.6 AS category,
    said.7 AS gpus,
    said.8 AS class,
    said.9 AS code,
    said.1 AS revision,
    toUnixTimestamp64Milli(stop) - toUnixTimestamp64Milli(start) AS wall_ms,
    if(category = 'queued', 0, wall_ms * gpus) AS gpu_ms
FROM
(
    SELECT
        job_id,
        attempt,
        hour,
        piece,
        arrayFirst(record -> record.3 <= piece.1 AND record.10 >= piece.2, records) AS said
    FROM
    (
        SELECT
            job_id,
            attempt,
            hour,
            arrayReverseSort(
                record -> (record.1, record.2, record.3),
                groupArray((revision, emitted, start, cluster, team, category, gpus, class, code, stop))
            ) AS records,
            arraySort(groupUniqArrayArray([start, stop])) AS borders
        FROM gpu_time FINAL
        GROUP BY job_id, attempt, hour
    )
    ARRAY JOIN arrayZip(arrayPopBack(borders), arrayPopFront(borders)) AS piece
)
-- Of a piece that no record covers the first is the default, which ends when it begins.
WHERE said.10 > said.3;

CREATE TABLE IF NOT EXISTS fleet_time
(
    cluster LowCardinality(String),
    pool LowCardinality(String),                 -- '': the whole cluster
    start DateTime64(3, 'UTC'),
    stop DateTime64(3, 'UTC'),
    gpu_seconds Map(LowCardinality(String), Float64),
    emitted DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(start)
ORDER BY (cluster, pool, start);

CREATE TABLE IF NOT EXISTS slo_status
(
    objective LowCardinality(String),
    cluster LowCardinality(String),
    pool LowCardinality(String),                 -- '': not part of the scope
    team LowCardinality(String),
    workload LowCardinality(String),
    window LowCardinality(String),               -- ISO 8601 duration
    time DateTime64(3, 'UTC'),
    unit LowCardinality(String),
    good Float64,
    total Float64,
    attained Nullable(Float64),
    target Float64,
    budget_remaining Nullable(Float64),
    burn Map(LowCardinality(String), Float64),
    by_cause Map(LowCardinality(String), Float64),
    low Nullable(Float64),
    high Nullable(Float64),
    event_id String
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (objective, cluster, pool, team, workload, window, time);

CREATE OR REPLACE VIEW slo_status_latest AS
SELECT *
FROM slo_status FINAL
ORDER BY objective, cluster, pool, team, workload, window, time DESC
LIMIT 1 BY objective, cluster, pool, team, workload, window;
