-- Roll-outs that began in the window or in the week before it, as far as events are kept.
SELECT
    JSONExtractString(raw, 'data', 'rollout_id') AS rollout_id,
    argMin(JSONExtractString(raw, 'data', 'what'), time) AS what,
    argMin(JSONExtractString(raw, 'data', 'version'), time) AS version,
    argMax(JSONExtractString(raw, 'data', 'phase'), time) AS phase,
    toUnixTimestamp64Milli(min(time)) AS began_ms
FROM events_raw FINAL
WHERE type = 'faultlens.platform.rollout.v1'
    AND time >= fromUnixTimestamp64Milli({from:Int64} - 604800000, 'UTC')
    AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR JSONExtractString(raw, 'data', 'cluster') = {cluster:String})
GROUP BY rollout_id
ORDER BY began_ms, rollout_id
LIMIT 20
