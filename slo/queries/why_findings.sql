-- Trouble that was noticed while the attempt ran.
SELECT kind, node, class, code, summary, toUnixTimestamp64Milli(since) AS at_ms
FROM findings FINAL
WHERE job_id = {job:String} AND attempt = {attempt:UInt32}
ORDER BY at_ms
LIMIT 50
