-- What a node is and was last heard of as.
SELECT
    node,
    cluster,
    pool,
    gpu_family,
    driver_version,
    agent_version,
    domains,
    gpus_total,
    gpus_allocatable,
    failing,
    last_action,
    last_actor,
    toUnixTimestamp64Milli(last_report_at) AS report_ms
FROM nodes
WHERE node = {node:String}
