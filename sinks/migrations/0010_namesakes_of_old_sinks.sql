-- What a sink of a release before 0009 writes, until it is replaced, gets the whole key too.
ALTER TABLE node_states MODIFY COLUMN of_cluster DEFAULT cluster;

INSERT INTO node_states
SELECT
    node, since, state, cluster, pool, gpus_total, gpus_allocatable, planned, cause, incident_id, emitted, event_id, cluster
FROM node_states
WHERE of_cluster = '';
