-- Which pools nodes are in and which teams jobs are of.
SELECT
    (SELECT arraySort(groupUniqArray(toString(pool))) FROM node_states WHERE pool != '') AS pools,
    (SELECT arraySort(groupUniqArray(toString(team))) FROM job_facts WHERE team != '') AS teams
