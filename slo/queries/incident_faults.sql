-- The faults that an incident rests on, for whoever repairs the machine: the driver's own lines, and what it names.
SELECT
    kind,
    code,
    node,
    device,
    gpu_family,
    driver_version,
    boot_id,
    message,
    count,
    toUnixTimestamp64Milli(time) AS at_ms
FROM faults FINAL
WHERE has({evidence:Array(String)}, id)
ORDER BY time, id
LIMIT 50
