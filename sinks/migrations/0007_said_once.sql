-- What happened is told by `summary`: nothing ever wrote a second sentence beside it.

-- What reads the table's columns by `SELECT *` is made anew before the column goes, and names what it gives.
CREATE OR REPLACE VIEW attributions_latest AS
SELECT
    job_id, attempt, loss, revision, status, cluster, class, code, summary, basis, confidence, node, device_index,
    device, rank, alternatives, advice, exclude_nodes, exclude_devices, lost_gpu_seconds, since_checkpoint_s, rule,
    catalog, ended_at, emitted, event_id
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

ALTER TABLE attributions DROP COLUMN IF EXISTS why;

-- Verdicts that changed after they were final: what each was first, and what it is now. Report and dashboards ask this.
CREATE OR REPLACE VIEW attributions_changed AS
SELECT
    job_id,
    attempt,
    loss,
    first.1 AS was_class,
    first.2 AS was_code,
    first.3 AS was_node,
    last.1 AS class,
    last.2 AS code,
    last.3 AS node,
    last.4 AS status,
    last.5 AS rule,
    last.6 AS summary,
    last.7 AS cluster,
    last.8 AS ended_at,
    last.9 AS changed_at
FROM
(
    SELECT
        job_id,
        attempt,
        loss,
        argMinIf(tuple(class, code, node), revision, status IN ('final', 'amended')) AS first,
        argMax(tuple(class, code, node, status, rule, summary, cluster, ended_at, emitted), revision) AS last
    FROM attributions FINAL
    GROUP BY job_id, attempt, loss
    HAVING countIf(status IN ('final', 'amended')) > 0
)
WHERE status = 'withdrawn' OR (class, code, node) != (was_class, was_code, was_node);
