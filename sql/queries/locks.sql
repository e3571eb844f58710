-- name: lock_hop
-- Lock a candidate for the rest of the transaction, or say that it is locked.
SELECT pg_try_advisory_xact_lock(1835889762, %(key)s::integer) AS locked;

-- name: lock_run
-- Lock a run for the rest of the session, or say that it is locked.
SELECT pg_try_advisory_lock(1835889763, %(key)s::integer) AS locked;

-- name: hold_run
-- Lock a run for the rest of the transaction, or say that it is locked.
SELECT pg_try_advisory_xact_lock(1835889763, %(key)s::integer) AS locked;

-- name: unlock_run
-- Release a run's lock.
SELECT pg_advisory_unlock(1835889763, %(key)s::integer);

-- name: lock_totals
-- Lock the totals of runs for the rest of the transaction, to write them; return those that nobody else had locked.
SELECT r.run_id
FROM pg_catalog.unnest(%(run_ids)s::bigint[]) AS r (run_id)
WHERE pg_try_advisory_xact_lock(1835889764, mod(r.run_id, 2147483648)::integer);

-- name: share_totals
-- Keep the totals of a run from being written for the rest of the transaction, after those who write them have ended.
SELECT pg_advisory_xact_lock_shared(1835889764, %(key)s::integer);

-- name: bound_waits
-- Wait for each lock so long in this transaction, where the session has no limit of its own.
SELECT set_config('lock_timeout', %(timeout)s::text, TRUE)
WHERE current_setting('lock_timeout') = '0';
