-- What producers said. Absent text is '', absent numbers and times are NULL; times are UTC with milliseconds.
-- Every table may be written twice with the same rows: ReplacingMergeTree keeps one row per ORDER BY key. Rows that
-- are not merged yet are seen double by a plain SELECT; read tables with FINAL, or through the views, which are exact.

CREATE TABLE IF NOT EXISTS events_raw
(
    type LowCardinality(String),
    source String,
    id String,
    subject String,
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    arrived DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    raw String CODEC(ZSTD(3)),
    stored DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD)
)
ENGINE = ReplacingMergeTree(stored)
PARTITION BY toMonday(time)
ORDER BY (subject, type, time, source, id)
-- From when it was stored: a history of last year that is replayed today stays for 30 days too.
TTL toDateTime(stored, 'UTC') + INTERVAL 30 DAY;

-- One row per record that tells something of a job or attempt. `official`: a scheduler or bridge told it.
-- `precedence` orders the facts: official ones first, then later arrival, then a hash that settles ties.
CREATE TABLE IF NOT EXISTS job_facts
(
    job_id String,
    attempt UInt32,                              -- 0: of the job as a whole
    fact LowCardinality(String),                 -- submitted, pending, allocated, started, resized, ended, labelled
    source String,
    id String,
    time DateTime64(3, 'UTC'),
    official Bool,
    precedence UInt64,
    cluster LowCardinality(String),
    user LowCardinality(String),
    team LowCardinality(String),
    name String,
    workload LowCardinality(String),
    replicas Nullable(UInt32),
    gpus Nullable(UInt32),                       -- wanted (submitted), or held on the nodes of this record
    nodes Nullable(UInt32),                      -- wanted
    priority Nullable(Float64),
    image String,
    image_digest String,
    spec_hash String,
    node_names Array(String),
    outcome LowCardinality(String),
    exit_code Nullable(Int32),
    signal LowCardinality(String),
    reason LowCardinality(String),
    message String,
    restarts_with_attempt Nullable(UInt32),
    preempted_by String,                         -- job/attempt
    command_id String,
    loss UInt32,
    cause_class LowCardinality(String),
    cause_code LowCardinality(String),
    told_by String
)
ENGINE = ReplacingMergeTree(precedence)
PARTITION BY toYYYYMM(time)
ORDER BY (job_id, attempt, fact, source, id);

CREATE OR REPLACE VIEW jobs AS
SELECT
    job_id,
    argMaxIf(cluster, precedence, cluster != '') AS cluster,
    argMaxIf(user, precedence, user != '') AS user,
    argMaxIf(team, precedence, team != '') AS team,
    argMaxIf(name, precedence, name != '') AS name,
    argMaxIf(workload, precedence, workload != '') AS workload,
    argMaxIf(replicas, precedence, fact = 'submitted') AS replicas,
    argMaxIf(gpus, precedence, fact = 'submitted') AS gpus,
    argMaxIf(nodes, precedence, fact = 'submitted') AS nodes,
    argMaxIf(priority, precedence, fact = 'submitted') AS priority,
    argMaxIf(image, precedence, image != '') AS image,
    argMaxIf(image_digest, precedence, image_digest != '') AS image_digest,
    argMaxIf(spec_hash, precedence, spec_hash != '') AS spec_hash,
    argMaxIf(toNullable(time), precedence, fact = 'submitted') AS submitted_at,
    max(attempt) AS attempts,
    argMaxIf(outcome, (attempt, precedence), fact = 'ended') AS outcome,
    argMaxIf(reason, precedence, fact = 'pending') AS pending_reason
FROM job_facts
GROUP BY job_id;

CREATE OR REPLACE VIEW attempts AS
SELECT
    job_id,
    attempt,
    argMaxIf(cluster, precedence, cluster != '') AS cluster,
    argMaxIf(user, precedence, user != '') AS user,
    argMaxIf(image_digest, precedence, image_digest != '') AS image_digest,
    arraySort(groupUniqArrayArrayIf(node_names, fact = 'allocated')) AS node_names,
    argMaxIf(toNullable(time), precedence, fact = 'allocated') AS allocated_at,
    argMaxIf(toNullable(time), precedence, fact = 'started') AS started_at,
    argMaxIf(toNullable(time), precedence, fact = 'ended') AS ended_at,
    argMaxIf(outcome, precedence, fact = 'ended') AS outcome,
    -- The scheduler is right about the outcome, the launcher about how the process exited.
    coalesce(argMaxIf(exit_code, precedence, NOT official), argMax(exit_code, precedence)) AS exit_code,
    if(
        countIf(NOT official AND signal != '') > 0,
        argMaxIf(signal, precedence, NOT official AND signal != ''),
        argMaxIf(signal, precedence, signal != '')
    ) AS signal,
    argMaxIf(reason, precedence, fact = 'ended' AND reason != '') AS reason,
    argMaxIf(message, precedence, fact = 'ended' AND message != '') AS message,
    argMax(restarts_with_attempt, precedence) AS restarts_with_attempt,
    argMaxIf(preempted_by, precedence, preempted_by != '') AS preempted_by,
    argMaxIf(command_id, precedence, command_id != '') AS command_id,
    countIf(fact = 'resized') AS resizes,
    argMaxIf(cause_class, precedence, fact = 'labelled' AND loss = 0) AS label_class,
    argMaxIf(cause_code, precedence, fact = 'labelled' AND loss = 0) AS label_code,
    argMaxIf(told_by, precedence, fact = 'labelled' AND loss = 0) AS label_by
FROM job_facts
WHERE attempt > 0
GROUP BY job_id, attempt;

CREATE TABLE IF NOT EXISTS faults
(
    node String,
    time DateTime64(3, 'UTC'),
    source String,
    id String,
    cluster LowCardinality(String),
    pool LowCardinality(String),
    kind LowCardinality(String),
    code LowCardinality(String),
    subcode LowCardinality(String),
    device_index Nullable(Int32),
    device String,                               -- everything said of it, as JSON
    detected_by LowCardinality(String),
    count UInt32,
    synthetic Bool,
    process String,
    message String CODEC(ZSTD),
    boot_id String,
    gpu_family LowCardinality(String),
    driver_version LowCardinality(String),
    arrived DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(arrived)
PARTITION BY toYYYYMM(time)
ORDER BY (node, time, source, id);

-- The latest of each kind of thing that is told of a node; not partitioned, since its time moves on.
CREATE TABLE IF NOT EXISTS node_facts
(
    node String,
    fact LowCardinality(String),                 -- report, inventory, fault, action
    time DateTime64(3, 'UTC'),
    version UInt64,
    cluster LowCardinality(String),
    pool LowCardinality(String),
    boot_id String,
    domains Map(LowCardinality(String), String),
    gpu_family LowCardinality(String),
    host_id String,
    provider_id String,
    driver_version LowCardinality(String),
    agent_version LowCardinality(String),
    interval_s Nullable(Float64),
    gpus_total Nullable(UInt32),
    gpus_allocatable Nullable(UInt32),
    failing Array(String),                       -- `check=status` of what did not pass
    devices String,                              -- the inventory, as JSON
    action LowCardinality(String),
    actor String,
    planned Bool
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (node, fact);

CREATE OR REPLACE VIEW nodes AS
SELECT
    node,
    argMaxIf(cluster, version, cluster != '') AS cluster,
    argMaxIf(pool, version, pool != '') AS pool,
    argMaxIf(boot_id, version, boot_id != '') AS boot_id,
    argMaxIf(domains, version, notEmpty(domains)) AS domains,
    argMaxIf(gpu_family, version, gpu_family != '') AS gpu_family,
    argMaxIf(host_id, version, host_id != '') AS host_id,
    argMaxIf(provider_id, version, provider_id != '') AS provider_id,
    argMaxIf(driver_version, version, driver_version != '') AS driver_version,
    argMaxIf(agent_version, version, agent_version != '') AS agent_version,
    argMaxIf(interval_s, version, fact = 'report') AS interval_s,
    argMaxIf(gpus_total, version, fact = 'report') AS gpus_total,
    argMaxIf(gpus_allocatable, version, fact = 'report') AS gpus_allocatable,
    argMaxIf(failing, version, fact = 'report') AS failing,
    argMaxIf(devices, version, fact = 'inventory') AS devices,
    argMaxIf(action, version, fact = 'action') AS last_action,
    argMaxIf(actor, version, fact = 'action') AS last_actor,
    argMaxIf(toNullable(time), version, fact = 'report') AS last_report_at,
    argMaxIf(toNullable(time), version, fact = 'fault') AS last_fault_at,
    max(time) AS last_seen
FROM node_facts
GROUP BY node;

CREATE TABLE IF NOT EXISTS results
(
    command_id String,
    at DateTime64(3, 'UTC'),
    source String,
    id String,
    cluster LowCardinality(String),
    node String,
    job_id String,
    action LowCardinality(String),
    state LowCardinality(String),
    actuator String,
    reason String,
    boot_id String,
    arrived DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(arrived)
PARTITION BY toYYYYMM(at)
ORDER BY (command_id, at, source, id);

-- Small facts about the store itself, such as the time up to which it was filled.
CREATE TABLE IF NOT EXISTS meta
(
    key String,
    value String,
    version UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY key;
