-- What the known GPU time of the fleet was used for, in GPU-milliseconds.
SELECT part.1 AS use, sum(toInt64(round(part.2 * 1000))) AS gpu_ms
FROM
(
    SELECT arrayJoin(arrayZip(mapKeys(gpu_seconds), mapValues(gpu_seconds))) AS part
    FROM fleet_time FINAL
    WHERE pool = ''
        AND start >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND start < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR cluster = {cluster:String})
)
GROUP BY use
HAVING gpu_ms != 0
ORDER BY gpu_ms DESC, use
