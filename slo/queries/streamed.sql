-- Where the objectives stood by the processors' own count, at the end of the window: the last status of each.
SELECT
    objective,
    cluster,
    window,
    argMax(unit, time) AS unit,
    argMax(good, time) AS good,
    argMax(total, time) AS total,
    argMax(tuple(attained), time).1 AS attained,
    argMax(target, time) AS target,
    argMax(burn, time) AS burn,
    argMax(by_cause, time) AS by_cause,
    argMax(tuple(low), time).1 AS low,
    argMax(tuple(high), time).1 AS high,
    toUnixTimestamp64Milli(max(time)) AS at_ms
FROM slo_status FINAL
WHERE time <= fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND pool = {pool:String}
    AND team = {team:String}
    AND workload = {workload:String}
GROUP BY objective, cluster, window
ORDER BY objective, cluster, window
