-- What actuators were told to do to a node, with what became of it.
SELECT
    c.command_id AS command_id,
    c.action AS action,
    c.mode AS mode,
    c.policy AS policy,
    toUnixTimestamp64Milli(c.issued_at) AS issued_ms,
    r.state AS state,
    r.reason AS reason
FROM (SELECT * FROM commands FINAL WHERE node = {node:String} ORDER BY issued_at DESC LIMIT {limit:UInt32}) AS c
LEFT JOIN
(
    SELECT command_id, argMax(state, at) AS state, argMax(reason, at) AS reason
    FROM results FINAL
    GROUP BY command_id
) AS r ON c.command_id = r.command_id
ORDER BY issued_ms DESC, command_id
