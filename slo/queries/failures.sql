-- Verdicts in force by day, cause and basis: failed attempts, and losses that attempts survived.
SELECT
    toUnixTimestamp64Milli(toDateTime64(toStartOfDay(v.ended_at, 'UTC'), 3, 'UTC')) AS day_ms,
    v.class AS class,
    v.code AS code,
    v.basis AS basis,
    v.status AS status,
    v.loss > 0 AS survived,
    count() AS failures
FROM attributions_latest AS v
LEFT JOIN jobs AS j ON v.job_id = j.job_id
WHERE v.ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    AND v.ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR v.cluster = {cluster:String})
    AND ({team:String} = '' OR j.team = {team:String})
GROUP BY day_ms, class, code, basis, status, survived
ORDER BY day_ms, class, code, basis, status, survived
