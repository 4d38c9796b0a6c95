-- Which pool of nodes an attempt counts for: the one that all nodes that it was ever given were in when it was allocated,
-- or that was known of them first after that and before its end. '': they are of several, or it is not known of one.
CREATE OR REPLACE VIEW attempt_pools AS
SELECT job_id, attempt, if(min(of_node) = max(of_node), min(of_node), '') AS pool
FROM
(
    SELECT
        given.job_id AS job_id,
        given.attempt AS attempt,
        arrayLast(state -> state.1 <= given.allocated_at, told.states).2 AS at_first,
        arrayFirst(state -> given.ended_at IS NULL OR state.1 < given.ended_at, told.states).2 AS later,
        if(at_first != '', at_first, later) AS of_node
    FROM
    (
        SELECT
            job_id,
            attempt,
            argMaxIf(cluster, precedence, cluster != '') AS cluster,
            minIf(time, fact = 'allocated') AS allocated_at,
            argMaxIf(toNullable(time), precedence, fact = 'ended') AS ended_at,
            arrayJoin(groupUniqArrayArrayIf(node_names, fact IN ('allocated', 'resized'))) AS node
        FROM job_facts
        WHERE attempt > 0 AND fact IN ('allocated', 'resized', 'ended')
        GROUP BY job_id, attempt
    ) AS given
    LEFT JOIN
    (
        SELECT cluster, node, arraySort(groupArray((since, toString(pool)))) AS states
        FROM node_states FINAL
        WHERE pool != ''
        GROUP BY cluster, node
    ) AS told ON given.cluster = told.cluster AND given.node = told.node
)
GROUP BY job_id, attempt;

-- A sink of the release before still names this column when it writes, until it is replaced: what it says there is dropped.
ALTER TABLE attributions ADD COLUMN IF NOT EXISTS why String EPHEMERAL;
