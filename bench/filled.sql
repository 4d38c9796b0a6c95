-- A store filled with the answers of a large fleet over months, by the engine itself: deterministic, in seconds.
-- Parameters: start, end (milliseconds since the epoch), span (their difference), nodes, days, jobs.

-- Of each job: when it is allocated, how long it runs, on which node, whether it fails, and of what.
CREATE TABLE made ENGINE = Memory AS
SELECT
    number AS n,
    concat('job-', toString(n)) AS job,
    fromUnixTimestamp64Milli(toInt64({start:Int64} + cityHash64(n, 'at') % {span:Int64}), 'UTC') AS began,
    60 * (5 + cityHash64(n, 'long') % 470) AS ran_s,
    began + toIntervalSecond(ran_s) AS ended,
    concat('node-', leftPad(toString(cityHash64(n, 'node') % {nodes:UInt32}), 5, '0')) AS node,
    cityHash64(n, 'fails') % 10 = 0 AS fails,
    cityHash64(n, 'why') % 8 AS why,
    ['hardware', 'driver', 'platform', 'user', 'user', 'user', 'user', 'platform'][why + 1] AS class_,
    [
        'gpu.off_bus', 'driver.gsp', 'platform.storage', 'app.exception', 'app.oom.gpu', 'app.config', 'app.time_limit',
        'platform.network'
    ][why + 1] AS code_,
    concat('team-', toString(n % 12)) AS team_
FROM numbers({jobs:UInt64});

INSERT INTO job_facts (job_id, attempt, fact, source, id, time, official, precedence, cluster, user, team, workload, gpus,
    nodes)
SELECT job, 0, 'submitted', 'scheduler/s', 's', began - 60, 1, n, 'c1', concat('u', toString(n % 200)), team_,
    'training', 8, 1
FROM made;

INSERT INTO job_facts (job_id, attempt, fact, source, id, time, official, precedence, cluster, node_names, gpus)
SELECT job, 1, 'allocated', 'scheduler/s', 'a', began, 1, n, 'c1', [node], 8
FROM made;

INSERT INTO job_facts (job_id, attempt, fact, source, id, time, official, precedence)
SELECT job, 1, 'started', 'launcher/l', 'r', began + 30, 0, n
FROM made;

INSERT INTO job_facts (job_id, attempt, fact, source, id, time, official, precedence, outcome)
SELECT job, 1, 'ended', 'scheduler/s', 'e', ended, 1, n, if(fails, 'failed', 'succeeded')
FROM made;

INSERT INTO job_facts (job_id, attempt, fact, source, id, time, official, precedence, cause_class, cause_code, told_by, message)
SELECT job, 1, 'labelled', 'operator/o', 'l', ended + 3600, 0, n, 'user', 'app.config', 'ann', 'a typo'
FROM made WHERE fails AND cityHash64(n, 'said') % 10 = 0;

INSERT INTO attributions (job_id, attempt, loss, revision, status, cluster, class, code, summary, basis, confidence, node,
    device_index, advice, lost_gpu_seconds, since_checkpoint_s, rule, catalog, ended_at, emitted, event_id)
SELECT job, 1, 0, revision, if(revision = 1, 'provisional', 'final'), 'c1', class_, code_, 'it broke',
    arrayElement(['established', 'supported', 'assumed'], cityHash64(n, 'how') % 3 + 1), 0.95, if(class_ IN
    ('hardware', 'driver'), node, ''), if(class_ = 'hardware', cityHash64(n, 'gpu') % 8, NULL), 'retry', ran_s * 2,
    ran_s / 4, concat('rule_', toString(why)), 'c', ended, ended + if(revision = 1, 2, 300), toString(revision)
FROM made ARRAY JOIN [1, 2] AS revision WHERE fails;

INSERT INTO attributions (job_id, attempt, loss, revision, status, cluster, class, code, summary, basis, confidence, advice,
    lost_gpu_seconds, since_checkpoint_s, rule, catalog, ended_at, emitted, event_id)
SELECT job, 1, 0, 3, 'amended', 'c1', 'user', 'app.config', 'a typo', 'established', 1, 'do_not_retry', ran_s * 2, ran_s / 4,
    'labelled_by_a_person', 'c', ended, ended + 3600, '3'
FROM made WHERE fails AND cityHash64(n, 'said') % 10 = 0;

INSERT INTO evidence (job_id, attempt, loss, revision, position, role, source, event_id, time, what, ended_at, emitted)
SELECT job, 1, 0, 2, position, if(position = 0, 'root', 'cascade'), concat('agent/', node), 'x', ended - 5, 'xid 79', ended, ended + 300
FROM made ARRAY JOIN [0, 1, 2] AS position WHERE fails;

-- As the ledger tells it: twice an hour, with a checkpoint of a minute between; what a failure lost replaces the last
-- quarter of an hour, which had been told as productive.
INSERT INTO gpu_time (job_id, attempt, hour, revision, start, stop, cluster, team, category, gpus, class, code, emitted)
WITH toStartOfHour(began) + toIntervalHour(step) AS of_hour, greatest(began, of_hour) AS part_from, least(ended,
    of_hour + toIntervalHour(1)) AS part_to, part_from + toIntervalSecond(intDiv(dateDiff('second', part_from, part_to),
    2)) AS middle, least(middle + 60, part_to) AS saved
SELECT job, 1, of_hour, 2 * step + piece.1, piece.2, piece.3, 'c1', team_, piece.4, 8, '', '', piece.3
FROM made ARRAY JOIN range(9) AS step ARRAY JOIN [(1, part_from, middle, if(step = 0, 'startup', 'productive')), (2,
    middle, saved, 'checkpoint_save'), (2, saved, part_to, 'productive')] AS piece
WHERE part_to > part_from AND piece.3 > piece.2;

INSERT INTO gpu_time (job_id, attempt, hour, revision, start, stop, cluster, team, category, gpus, class, code, emitted)
SELECT job, 1, toStartOfHour(lost_from) AS of_hour, 100, lost_from, least(ended, of_hour + toIntervalHour(1)), 'c1',
    team_, 'lost_work', 8, class_, code_, ended + 300
FROM (SELECT *, arrayJoin([greatest(began, ended - 900), toStartOfHour(ended)]) AS lost_from FROM made WHERE fails)
WHERE lost_from >= greatest(began, ended - 900) AND ended > lost_from;

INSERT INTO gpu_hours_due SELECT hour, now64(3, 'UTC') FROM gpu_time GROUP BY hour;

INSERT INTO node_states (node, since, state, cluster, pool, gpus_total, gpus_allocatable, planned, cause, emitted, event_id)
WITH number % {nodes:UInt32} AS i, intDiv(number, {nodes:UInt32}) AS turn,
    fromUnixTimestamp64Milli(toInt64({start:Int64} + turn * 43200000 + cityHash64(number) % 36000000), 'UTC') AS at
SELECT concat('node-', leftPad(toString(i), 5, '0')), at, arrayElement(['available', 'available', 'degraded',
    'blocked', 'available', 'down'], cityHash64(number, 's') % 6 + 1) AS state, 'c1', if(i % 2, 'h100', 'a100'), 8,
    if(state = 'degraded', 7, 8), 0, if(state = 'available', '', 'gpu.off_bus'), at, 'x'
FROM numbers({nodes:UInt32} * {days:UInt32} * 2);

INSERT INTO node_facts (node, fact, time, version, cluster, pool, domains, gpu_family, driver_version, gpus_total,
    gpus_allocatable)
SELECT concat('node-', leftPad(toString(number), 5, '0')), 'report', fromUnixTimestamp64Milli({end:Int64}, 'UTC'),
    1, 'c1', if(number % 2, 'h100', 'a100'), map('rack', concat('r', toString(intDiv(number, 16)))), if(number % 2,
    'H100', 'A100'), if(number % 3, '570.1', '580.2'), 8, 8
FROM numbers({nodes:UInt32});

INSERT INTO faults (node, time, source, id, cluster, kind, code, device_index, count, synthetic, message, arrived)
WITH fromUnixTimestamp64Milli(toInt64({start:Int64} + cityHash64(number, 't') % {span:Int64}), 'UTC') AS at
SELECT concat('node-', leftPad(toString(cityHash64(number, 'n') % {nodes:UInt32}), 5, '0')), at, 'agent/a',
    toString(number), 'c1', 'xid', arrayElement(['79', '48', '94', '31', '13'], number % 5 + 1), number % 8, 1, 0,
    'NVRM: Xid', at
FROM numbers({nodes:UInt32} * {days:UInt32});

INSERT INTO fleet_time (cluster, pool, start, stop, gpu_seconds, emitted)
WITH fromUnixTimestamp64Milli(toInt64({start:Int64} + number * 3600000), 'UTC') AS at
SELECT 'c1', pool, at, at + 3600, map('allocated', {nodes:UInt32} * 20000., 'idle_healthy', {nodes:UInt32} * 7000.,
    'down', {nodes:UInt32} * 1800.), at + 3600
FROM numbers({days:UInt32} * 24) ARRAY JOIN ['', 'h100', 'a100'] AS pool;

INSERT INTO slo_status (objective, cluster, pool, team, workload, window, time, unit, good, total, attained, target,
    budget_remaining, burn, by_cause, event_id)
WITH fromUnixTimestamp64Milli(toInt64({start:Int64} + number * 3600000), 'UTC') AS at, cityHash64(number, objective,
    team) % 1000 AS bad
SELECT objective, 'c1', '', team, '', 'P28D', at, 'attempts', 100000. - bad, 100000., 1 - bad / 100000, 0.995, 1 -
    bad / 500, map('PT1H', bad / 500, 'PT5M', 0., 'P1D', 1.), map('hardware', bad * 0.5, 'platform', bad * 0.5), 'x'
FROM numbers({days:UInt32} * 24) ARRAY JOIN ['node_availability', 'gpu_availability', 'job_start', 'job_success',
    'goodput', 'coverage'] AS objective ARRAY JOIN ['', 'team-0', 'team-1', 'team-2', 'team-3'] AS team;

INSERT INTO incidents (incident_id, emitted, event_id, cluster, phase, cause, severity, nodes, first_seen, last_seen, count,
    command_ids, jobs)
WITH fromUnixTimestamp64Milli(toInt64({start:Int64} + cityHash64(number) % {span:Int64}), 'UTC') AS at
SELECT concat('inc-', toString(number)), at, 'x', 'c1', if(number % 20, 'closed', 'opened'), 'gpu.off_bus', 5,
    [concat('node-', leftPad(toString(number % {nodes:UInt32}), 5, '0'))], at, at + 3600, 1, ['c'], ['j/1']
FROM numbers(intDiv({nodes:UInt32} * {days:UInt32}, 10));

INSERT INTO commands (command_id, cluster, node, action, rung, incident_id, issued_at, expires_at, finish_by, mode, policy,
    emitted)
WITH fromUnixTimestamp64Milli(toInt64({start:Int64} + cityHash64(number) % {span:Int64}), 'UTC') AS at
SELECT concat('cmd-', toString(number)), 'c1', concat('node-', leftPad(toString(number % {nodes:UInt32}), 5, '0')),
    arrayElement(['drain', 'reset_device', 'reboot', 'return_to_service'], number % 4 + 1), 0, concat('inc-',
    toString(number)), at, at + 600, at + 3600, if(number % 5, 'live', 'shadow'), 'p', at
FROM numbers(intDiv({nodes:UInt32} * {days:UInt32}, 10));

INSERT INTO results (command_id, at, source, id, cluster, action, state, actuator, arrived)
WITH fromUnixTimestamp64Milli(toInt64({start:Int64} + cityHash64(number) % {span:Int64}), 'UTC') AS at
SELECT concat('cmd-', toString(number)), at + 60 + number % 900, 'actuator/a', 'r', 'c1', 'drain',
    arrayElement(['succeeded', 'succeeded', 'failed', 'refused'], number % 4 + 1), 'a', at
FROM numbers(intDiv({nodes:UInt32} * {days:UInt32}, 10));

INSERT INTO dead_letters (topic, partition, offset, event_id, time, reason, error)
SELECT 'node-events', 0, number, 'x', fromUnixTimestamp64Milli(toInt64({start:Int64} + cityHash64(number) %
    {span:Int64}), 'UTC'), 'not_json', 'expected a value'
FROM numbers({days:UInt32} * 10);

DROP TABLE made;
