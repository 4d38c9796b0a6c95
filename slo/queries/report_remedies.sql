-- Commands of the window by action: what became of them, how long they took (seconds), and after how many that succeeded
-- their node was to blame for another failure within a day.
WITH blamed AS
(
    SELECT node, groupArray(ended_at) AS at
    FROM attributions_latest
    WHERE node != '' AND class IN ('hardware', 'driver') AND ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    GROUP BY node
)
SELECT
    c.action AS action,
    c.mode AS mode,
    count() AS commands,
    countIf(r.state = 'succeeded') AS succeeded,
    countIf(r.state = 'failed') AS failed,
    countIf(r.state = 'refused') AS refused,
    countIf(r.state = 'expired') AS expired,
    countIf(r.state = 'succeeded' AND arrayExists(at -> at > r.ended AND at <= r.ended + INTERVAL 1 DAY, b.at)) AS relapsed,
    ifNotFinite(quantileIf(0.5)(dateDiff('second', c.issued_at, r.ended), r.state IN ('succeeded', 'failed')), 0) AS median_s
FROM
(
    SELECT command_id, action, mode, node, issued_at
    FROM commands FINAL
    WHERE NOT replayed
        AND issued_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND issued_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR cluster = {cluster:String})
) AS c
LEFT JOIN
(
    SELECT command_id, argMax(state, at) AS state, max(at) AS ended
    FROM results FINAL
    GROUP BY command_id
) AS r ON c.command_id = r.command_id
LEFT JOIN blamed AS b ON c.node = b.node
GROUP BY action, mode
ORDER BY mode, commands DESC, action
