-- What faultlens said: verdicts with their evidence, findings, incidents, commands, states of nodes.
-- `emitted` is the event time of the record that said it.

CREATE TABLE IF NOT EXISTS attributions
(
    job_id String,
    attempt UInt32,
    loss UInt32,                                 -- 0: the attempt's end; 1, 2 …: a loss that it survived
    revision UInt32,
    status LowCardinality(String),               -- provisional, final, amended, withdrawn
    cluster LowCardinality(String),
    class LowCardinality(String),
    code LowCardinality(String),
    summary String,
    basis LowCardinality(String),
    confidence Float64,
    node String,
    device_index Nullable(Int32),
    device String,                               -- as JSON
    rank Nullable(Int32),
    alternatives Array(Tuple(class String, code String, confidence Float64)),
    advice LowCardinality(String),
    exclude_nodes Array(String),
    exclude_devices Array(String),
    lost_gpu_seconds Float64,
    since_checkpoint_s Float64,
    rule LowCardinality(String),
    catalog LowCardinality(String),
    ended_at DateTime64(3, 'UTC'),
    why String,
    emitted DateTime64(3, 'UTC'),
    event_id String
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(ended_at)
ORDER BY (job_id, attempt, loss, revision);

-- The verdict in force per attempt and loss: the highest final or amended revision, none if a withdrawn one is higher;
-- where nothing was settled (since), the highest provisional one.
CREATE OR REPLACE VIEW attributions_latest AS
SELECT *
FROM attributions FINAL
WHERE (job_id, attempt, loss, revision) IN
(
    SELECT
        job_id,
        attempt,
        loss,
        if(
            countIf(status IN ('final', 'amended')) > 0
                AND maxIf(revision, status IN ('final', 'amended')) > maxIf(revision, status = 'withdrawn'),
            maxIf(revision, status IN ('final', 'amended')),
            maxIf(revision, status = 'provisional')
        ) AS chosen
    FROM attributions
    GROUP BY job_id, attempt, loss
    HAVING chosen > maxIf(revision, status = 'withdrawn')
);

CREATE TABLE IF NOT EXISTS evidence
(
    job_id String,
    attempt UInt32,
    loss UInt32,
    revision UInt32,
    position UInt32,
    role LowCardinality(String),
    source String,
    event_id String,
    time DateTime64(3, 'UTC'),
    what String,
    ended_at DateTime64(3, 'UTC'),
    emitted DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(ended_at)
ORDER BY (job_id, attempt, loss, revision, position);

CREATE TABLE IF NOT EXISTS findings
(
    job_id String,
    attempt UInt32,
    kind LowCardinality(String),
    since DateTime64(3, 'UTC'),
    until Nullable(DateTime64(3, 'UTC')),
    cluster LowCardinality(String),
    node String,
    device_index Nullable(Int32),
    device String,
    ranks Array(Int32),
    ratio Nullable(Float64),
    class LowCardinality(String),
    code LowCardinality(String),
    summary String,
    basis LowCardinality(String),
    evidence Array(Tuple(role String, source String, event_id String, time DateTime64(3, 'UTC'), what String)),
    emitted DateTime64(3, 'UTC'),
    event_id String
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(since)
ORDER BY (job_id, attempt, kind, since, node);

CREATE TABLE IF NOT EXISTS node_states
(
    node String,
    since DateTime64(3, 'UTC'),
    state LowCardinality(String),
    cluster LowCardinality(String),
    pool LowCardinality(String),
    gpus_total UInt32,
    gpus_allocatable UInt32,
    planned Bool,
    cause LowCardinality(String),
    incident_id String,
    emitted DateTime64(3, 'UTC'),
    event_id String
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(since)
ORDER BY (node, since);

-- Each state with the time at which the next one began (NULL: it is the current one).
CREATE OR REPLACE VIEW node_state_spans AS
SELECT
    node, cluster, pool, state, since,
    leadInFrame(toNullable(since), 1, NULL) OVER
        (PARTITION BY node ORDER BY since ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS until,
    gpus_total, gpus_allocatable, planned, cause, incident_id
FROM node_states FINAL;

CREATE TABLE IF NOT EXISTS incidents
(
    incident_id String,
    emitted DateTime64(3, 'UTC'),
    event_id String,
    cluster LowCardinality(String),
    phase LowCardinality(String),                -- opened, changed, closed
    cause LowCardinality(String),
    severity Int32,
    nodes Array(String),
    devices Array(String),
    domains Map(String, Array(String)),
    rollout_id String,
    first_seen DateTime64(3, 'UTC'),
    last_seen DateTime64(3, 'UTC'),
    count UInt32,
    rule LowCardinality(String),
    evidence Array(String),
    command_ids Array(String),
    jobs Array(String),                          -- job/attempt
    closed_because String
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(first_seen)
ORDER BY (incident_id, emitted, event_id);

CREATE OR REPLACE VIEW incidents_latest AS
SELECT *
FROM incidents FINAL
ORDER BY incident_id, emitted DESC, event_id DESC
LIMIT 1 BY incident_id;

CREATE TABLE IF NOT EXISTS commands
(
    command_id String,
    cluster LowCardinality(String),
    node String,
    job_id String,
    device String,
    boot_id String,
    action LowCardinality(String),
    rung UInt32,
    fault_codes Array(String),
    incident_id String,
    attributions Array(String),                  -- job/attempt
    issued_at DateTime64(3, 'UTC'),
    expires_at DateTime64(3, 'UTC'),
    finish_by DateTime64(3, 'UTC'),
    mode LowCardinality(String),
    policy LowCardinality(String),
    exclude_nodes Array(String),
    exclude_devices Array(String),
    emitted DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(emitted)
PARTITION BY toYYYYMM(issued_at)
ORDER BY command_id;

CREATE TABLE IF NOT EXISTS dead_letters
(
    topic LowCardinality(String),
    partition UInt32,
    offset Int64,
    event_id String,
    time DateTime64(3, 'UTC'),
    reason LowCardinality(String),
    error String,
    value String CODEC(ZSTD(3)),                 -- base64
    headers Map(String, String),
    sha256 String
)
ENGINE = ReplacingMergeTree(time)
PARTITION BY toYYYYMM(time)
ORDER BY (topic, partition, offset, event_id);
