-- One command, by its id or the beginning of it.
SELECT
    command_id,
    cluster,
    node,
    job_id,
    device,
    boot_id,
    action,
    rung,
    fault_codes,
    incident_id,
    attributions,
    toUnixTimestamp64Milli(issued_at) AS issued_ms,
    toUnixTimestamp64Milli(expires_at) AS expires_ms,
    toUnixTimestamp64Milli(finish_by) AS finish_ms,
    mode,
    policy,
    replayed
FROM commands FINAL
WHERE startsWith(command_id, {command:String})
ORDER BY command_id
LIMIT 2
