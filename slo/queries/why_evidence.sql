-- The evidence of one revision of a verdict.
SELECT role, source, what, toUnixTimestamp64Milli(time) AS at_ms
FROM evidence FINAL
WHERE job_id = {job:String} AND attempt = {attempt:UInt32} AND loss = {loss:UInt32} AND revision = {revision:UInt32}
ORDER BY position
LIMIT 200
