-- Names that came under more than one cluster, which are to be unique in an installation: of nodes and of jobs.
SELECT kind, count() AS names, arraySlice(arraySort(groupArray((name, clusters))), 1, {shown:UInt32}) AS some
FROM
(
    SELECT kind, name, arraySort(groupUniqArray(cluster)) AS clusters
    FROM
    (
        SELECT 'node' AS kind, arrayJoin(node_names) AS name, toString(cluster) AS cluster
        FROM job_facts
        WHERE fact = 'allocated'
        UNION ALL
        SELECT 'node', node, toString(cluster) FROM faults
        UNION ALL
        SELECT 'node', node, toString(cluster) FROM node_states
        UNION ALL
        SELECT 'job', job_id, toString(cluster) FROM job_facts
    )
    WHERE cluster != ''
    GROUP BY kind, name
    HAVING length(clusters) > 1
)
GROUP BY kind
ORDER BY kind DESC
