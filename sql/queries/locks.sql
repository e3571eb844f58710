-- name: lock_hop
-- Lock a candidate for the rest of the transaction, or say that it is locked.
SELECT pg_try_advisory_xact_lock(1835889762, %(key)s::integer) AS locked;

-- name: lock_run
-- Lock a run for the rest of the session, or say that it is locked.
SELECT pg_try_advisory_lock(1835889763, %(key)s::integer) AS locked;

-- name: unlock_run
-- Release a run's lock.
SELECT pg_advisory_unlock(1835889763, %(key)s::integer);
