-- How many verdicts were taken back and not given anew, and which versions of the rules spoke.
SELECT
    countIf(last_status = 'withdrawn') AS withdrawn,
    arraySort(arrayFilter(name -> name != '', groupUniqArray(last_catalog))) AS catalogs
FROM
(
    SELECT argMax(status, revision) AS last_status, argMax(catalog, revision) AS last_catalog
    FROM attributions
    WHERE ended_at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')
        AND ended_at < fromUnixTimestamp64Milli({to:Int64}, 'UTC')
        AND ({cluster:String} = '' OR cluster = {cluster:String})
        AND ({team:String} = '' OR job_id IN (SELECT job_id FROM jobs WHERE team = {team:String}))
    GROUP BY job_id, attempt, loss
)
