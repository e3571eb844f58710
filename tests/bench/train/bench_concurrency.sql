-- name: ready_slots
-- The slots of a worker process that wait for hops.
SELECT w.worker
FROM mmdb.worker_status AS w
WHERE w.process = %(process)s::text AND w.state = 'idle';

-- name: read_cancel
-- How a bench's run has ended for its driver, and the orders of its hops that are still open.
SELECT
    (
        SELECT count(*) FROM mmdb.run_outcome AS o
        WHERE o.request_id = %(request_id)s::bigint
    ) AS outcomes,
    (
        SELECT count(*) FROM mmdb.assignment AS a
        INNER JOIN mmdb.candidate AS c ON a.candidate_id = c.candidate_id
        INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
        WHERE r.name = %(prefix)s::text AND a.finished_at IS NULL
    ) AS open_orders;
