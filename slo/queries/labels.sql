-- What people said of failures, the last word on each, beside the program's own last verdict and the one in force.
WITH told AS
(
    SELECT
        job_id,
        attempt,
        loss,
        argMax(cause_class, precedence) AS label_class,
        argMax(cause_code, precedence) AS label_code,
        argMax(node_names, precedence) AS label_nodes,
        argMax(told_by, precedence) AS by,
        argMax(message, precedence) AS why,
        max(time) AS at,
        uniqExact(source, id) AS times
    FROM job_facts
    WHERE fact = 'labelled'
    GROUP BY job_id, attempt, loss
),
own AS
(
    SELECT
        job_id,
        attempt,
        loss,
        argMax(tuple(class, code, basis, rule, node, device_index, confidence, status), revision) AS said,
        min(emitted) AS first_said,
        max(ended_at) AS ended_at,
        1 AS judged
    FROM attributions FINAL
    WHERE rule != 'labelled_by_a_person' AND status != 'withdrawn'
        AND (job_id, attempt, loss) IN (SELECT job_id, attempt, loss FROM told)
    GROUP BY job_id, attempt, loss
)
SELECT
    t.job_id AS job_id,
    t.attempt AS attempt,
    t.loss AS loss,
    t.label_class AS label_class,
    t.label_code AS label_code,
    t.label_nodes AS label_nodes,
    t.by AS by,
    t.why AS why,
    toUnixTimestamp64Milli(t.at) AS at_ms,
    t.times AS times,
    o.judged = 1 AS judged,
    o.said.1 AS class,
    o.said.2 AS code,
    o.said.3 AS basis,
    o.said.4 AS rule,
    o.said.5 AS node,
    o.said.6 AS device_index,
    o.said.7 AS confidence,
    o.said.8 IN ('final', 'amended') AS settled,
    toUnixTimestamp64Milli(o.first_said) AS first_said_ms,
    toUnixTimestamp64Milli(o.ended_at) AS ended_ms,
    l.rule = 'labelled_by_a_person' AS in_force
FROM told AS t
LEFT JOIN own AS o ON t.job_id = o.job_id AND t.attempt = o.attempt AND t.loss = o.loss
LEFT JOIN attributions_latest AS l ON t.job_id = l.job_id AND t.attempt = l.attempt AND t.loss = l.loss
LEFT JOIN jobs AS j ON t.job_id = j.job_id
LEFT JOIN (SELECT job_id, attempt, cluster FROM attempts) AS a ON t.job_id = a.job_id AND t.attempt = a.attempt
WHERE ({job:String} = '' OR t.job_id = {job:String})
    AND ({cluster:String} = '' OR if(a.cluster = '', j.cluster, a.cluster) = {cluster:String})
    AND t.at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    AND t.at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
ORDER BY at_ms DESC, job_id, attempt, loss
LIMIT {limit:UInt32}
