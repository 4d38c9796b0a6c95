-- How many faults nodes reported in the window; injected ones are left out.
SELECT node, sum(count) AS faults
FROM faults FINAL
WHERE synthetic = 0
    AND time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
    AND ({cluster:String} = '' OR cluster = {cluster:String})
GROUP BY node
ORDER BY node
