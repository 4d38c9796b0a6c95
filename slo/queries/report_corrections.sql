-- Verdicts on failures of the window that changed after they were final: what each first was, and what it is now.
SELECT
    job_id,
    attempt,
    loss,
    was_class,
    was_code,
    was_node,
    class,
    code,
    node,
    status,
    rule,
    summary,
    toUnixTimestamp64Milli(changed_at) AS changed_ms,
    count() OVER () AS all_changed
FROM attributions_changed
WHERE ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND ({team:String} = '' OR job_id IN (SELECT job_id FROM jobs WHERE team = {team:String}))
ORDER BY changed_at DESC, job_id, attempt, loss
LIMIT 50
