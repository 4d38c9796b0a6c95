-- Incidents from their opening to their end, with all nodes that were ever in them and all that they waited for.
SELECT
    incident_id,
    arrayDistinct(arrayFlatten(groupArray(nodes))) AS nodes,
    toUnixTimestamp64Milli(min(emitted)) AS from_ms,
    if(countIf(phase = 'closed') = 0, NULL, toUnixTimestamp64Milli(maxIf(emitted, phase = 'closed'))) AS until_ms,
    max(notEmpty(domains)) AS common,
    groupUniqArray(waits_for) AS waited_for
FROM incidents FINAL
GROUP BY incident_id
ORDER BY from_ms, incident_id
