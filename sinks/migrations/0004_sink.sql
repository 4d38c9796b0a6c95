-- What the sink took from each partition of the log: the audit's proof that nothing is missing.

-- A row is a run of offsets, from `start` up to but not including `stop`, whose rows were all inserted before it. Runs
-- follow one another: each starts where the one before stopped, so that a hole is a loss. Offsets are not records:
-- transactions leave markers and aborted records between them, which no reader sees. `records` is what was seen.
CREATE TABLE IF NOT EXISTS sink_runs
(
    topic LowCardinality(String),
    partition UInt32,
    start Int64,
    stop Int64,
    records UInt64,                              -- events + ticks + dead
    events UInt64,
    ticks UInt64,
    dead UInt64,                                 -- records that are no event, or that no row can hold
    rows UInt64,                                 -- made of the events, those of `node_facts` apart
    refused UInt64,                              -- of these, refused by the store: dead letters too
    first_arrived DateTime64(3, 'UTC'),
    last_arrived DateTime64(3, 'UTC'),
    written DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
-- Of runs that start alike the longest counts: what was inserted once is not taken back by who comes late.
ENGINE = ReplacingMergeTree(stop)
ORDER BY (topic, partition, start)
TTL toDateTime(written, 'UTC') + INTERVAL 90 DAY;

-- An insert whose answer was lost is repeated with the same token; the tables remember the last of these.
ALTER TABLE events_raw MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE job_facts MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE faults MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE node_facts MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE results MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE evidence MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE attributions MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE findings MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE node_states MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE incidents MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE commands MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE gpu_time MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE fleet_time MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE slo_status MODIFY SETTING non_replicated_deduplication_window = 1000;
ALTER TABLE dead_letters MODIFY SETTING non_replicated_deduplication_window = 1000;
