-- From when and up to when the store knows anything of outcomes, and of which clusters. The processors' last status
-- says how far their clock had come; where there is none, the last of everything has to do.
SELECT
    min(first_ms) AS from_ms,
    if(maxIf(last_ms, of = 'status') > 0, maxIf(last_ms, of = 'status'), max(last_ms)) AS to_ms,
    sum(rows) AS known,
    arraySort(groupUniqArrayArray(names)) AS clusters
FROM
(
    SELECT
        'states' AS of,
        min(toUnixTimestamp64Milli(since)) AS first_ms,
        max(toUnixTimestamp64Milli(greatest(since, emitted))) AS last_ms,
        groupUniqArray(toString(cluster)) AS names,
        count() AS rows
    FROM node_states
    UNION ALL
    SELECT
        'ledger',
        min(toUnixTimestamp64Milli(start)),
        max(toUnixTimestamp64Milli(greatest(stop, emitted))),
        groupUniqArray(toString(cluster)),
        count()
    FROM gpu_time
    UNION ALL
    SELECT
        'jobs',
        min(toUnixTimestamp64Milli(time)),
        max(toUnixTimestamp64Milli(time)),
        groupUniqArrayIf(toString(cluster), cluster != ''),
        count()
    FROM job_facts
    UNION ALL
    SELECT
        'status',
        min(toUnixTimestamp64Milli(time)),
        max(toUnixTimestamp64Milli(time)),
        groupUniqArray(toString(cluster)),
        count()
    FROM slo_status
)
WHERE rows > 0
