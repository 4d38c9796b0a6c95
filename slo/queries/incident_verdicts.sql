-- The verdicts in force on the attempts that an incident cost.
SELECT
    concat(job_id, '/', toString(attempt)) AS job,
    class,
    code,
    basis,
    rule
FROM attributions_latest
WHERE has({jobs:Array(String)}, concat(job_id, '/', toString(attempt)))
ORDER BY job
LIMIT 50
