-- When nodes were first taken from work for an incident.
SELECT
    node,
    incident_id,
    argMin(fault_codes, issued_at) AS faults,
    toUnixTimestamp64Milli(min(issued_at)) AS at_ms
FROM commands FINAL
WHERE mode = 'live' AND node != '' AND action IN ('block_new_work', 'drain')
GROUP BY node, incident_id
ORDER BY at_ms, node, incident_id
