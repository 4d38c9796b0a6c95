-- Jobs that stopped their work to save it: how long a save took and how long it was from one to the next within an
-- attempt (medians), and what the job held.
SELECT
    s.job_id AS job_id,
    s.saves AS saves,
    s.write_s AS write_s,
    s.gap_ms AS gap_ms,
    h.gpus AS gpus,
    h.gpu_ms AS gpu_ms
FROM
(
    SELECT
        job_id,
        sum(length(times)) AS saves,
        quantileExactArray(0.5)(took) AS write_s,
        quantileExactArray(0.5)(arrayMap((next, one) -> next - one, arrayPopFront(times), arrayPopBack(times))) AS gap_ms
    FROM
    (
        SELECT job_id, attempt, arraySort(groupArray(toUnixTimestamp64Milli(time))) AS times, groupArray(write_s) AS took
        FROM
        (
            SELECT
                subject AS job_id,
                time,
                JSONExtractUInt(raw, 'data', 'attempt') AS attempt,
                JSONExtractFloat(raw, 'data', 'duration_s') AS write_s
            FROM events_raw FINAL
            WHERE type = 'faultlens.job.checkpoint.v1'
                AND time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
                AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
                AND JSONExtractBool(raw, 'data', 'ok')
                AND NOT JSONExtractBool(raw, 'data', 'restored')
                AND JSONExtractRaw(raw, 'data', 'blocking') != 'false'
        )
        WHERE write_s > 0
        GROUP BY job_id, attempt
        HAVING length(times) > 1
    )
    GROUP BY job_id
) AS s
INNER JOIN
(
    SELECT job_id, max(gpus) AS gpus, sum(gpu_ms) AS gpu_ms
    FROM gpu_time_latest
    WHERE hour >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND hour < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR cluster = {cluster:String})
        AND ({team:String} = '' OR team = {team:String})
    GROUP BY job_id
) AS h ON s.job_id = h.job_id
WHERE gap_ms > 0 AND gpus > 0
ORDER BY gpu_ms DESC, job_id
LIMIT 1000
