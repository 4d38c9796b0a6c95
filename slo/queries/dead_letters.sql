-- Records that could not be processed, by reason.
SELECT reason, count() AS records
FROM dead_letters FINAL
WHERE time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC') AND time < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
GROUP BY reason
ORDER BY records DESC, reason
