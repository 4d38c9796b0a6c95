-- Nodes of one name in two clusters have states of their own, even such as began in the same millisecond. A key can only
-- be lengthened by a new column, so the cluster stands there once more.
ALTER TABLE node_states
    ADD COLUMN IF NOT EXISTS of_cluster LowCardinality(String), MODIFY ORDER BY (node, since, of_cluster);

INSERT INTO node_states
SELECT
    node, since, state, cluster, pool, gpus_total, gpus_allocatable, planned, cause, incident_id, emitted, event_id, cluster
FROM node_states
WHERE of_cluster = '';

-- Each state with the time at which the node's next one began (NULL: it is the current one). What was written before
-- there was the column, or by a sink of the release before, may be there with it and without.
CREATE OR REPLACE VIEW node_state_spans AS
SELECT
    node, cluster, pool, state, since,
    leadInFrame(toNullable(since), 1, NULL) OVER
        (PARTITION BY cluster, node ORDER BY since ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS until,
    gpus_total, gpus_allocatable, planned, cause, incident_id
FROM
(
    SELECT * FROM node_states FINAL ORDER BY cluster, node, since, emitted DESC, of_cluster DESC LIMIT 1 BY cluster, node, since
);
