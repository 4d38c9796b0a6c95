-- When the attempt's nodes changed their state, around its end.
SELECT node, state, cause, planned, toUnixTimestamp64Milli(since) AS at_ms
FROM node_states FINAL
WHERE node IN {nodes:Array(String)}
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND since >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    AND since < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
ORDER BY at_ms, node
LIMIT 100
