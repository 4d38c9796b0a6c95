-- What the scheduler said of why an attempt waits, each time that it changed.
SELECT reason, message, toUnixTimestamp64Milli(time) AS at_ms
FROM job_facts FINAL
WHERE job_id = {job:String} AND fact = 'pending' AND attempt IN (0, {attempt:UInt32})
ORDER BY at_ms
LIMIT 20
