-- Verdicts on failures of the window that changed after they were final: what each first was, and what it is now.
SELECT
    job_id,
    attempt,
    loss,
    was.1 AS was_class,
    was.2 AS was_code,
    was.3 AS was_node,
    now.1 AS class,
    now.2 AS code,
    now.3 AS node,
    now.4 AS status,
    now.5 AS rule,
    now.6 AS summary,
    toUnixTimestamp64Milli(changed_at) AS changed_ms,
    count() OVER () AS all_changed
FROM
(
    SELECT
        job_id,
        attempt,
        loss,
        argMinIf(tuple(class, code, node), revision, status IN ('final', 'amended')) AS was,
        argMax(tuple(class, code, node, status, rule, summary), revision) AS now,
        argMax(emitted, revision) AS changed_at
    FROM attributions FINAL
    WHERE ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR cluster = {cluster:String})
        AND ({team:String} = '' OR job_id IN (SELECT job_id FROM jobs WHERE team = {team:String}))
    GROUP BY job_id, attempt, loss
    HAVING countIf(status IN ('final', 'amended')) > 0
)
WHERE status = 'withdrawn' OR (class, code, node) != (was_class, was_code, was_node)
ORDER BY changed_at DESC, job_id, attempt, loss
LIMIT 50
