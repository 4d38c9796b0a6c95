-- Jobs and nodes whose name is, or holds, what is looked for; what begins with it comes first.
SELECT kind, name
FROM
(
    SELECT 'job' AS kind, job_id AS name FROM jobs WHERE positionCaseInsensitive(job_id, {text:String}) > 0
    UNION ALL
    SELECT 'node' AS kind, node AS name FROM nodes WHERE positionCaseInsensitive(node, {text:String}) > 0
)
ORDER BY name != {text:String}, NOT startsWith(name, {text:String}), length(name), name
LIMIT {limit:UInt32}
