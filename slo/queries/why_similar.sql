-- Jobs whose id or name is like what was asked for, the likest first.
SELECT job_id, any(name) AS name, max(attempt) AS attempts
FROM job_facts
GROUP BY job_id
ORDER BY
    lower(job_id) != lower({job:String}),
    name != {job:String},
    position(lower(job_id), lower({job:String})) = 0,
    editDistance(lower(job_id), lower({job:String})),
    job_id
LIMIT 5
