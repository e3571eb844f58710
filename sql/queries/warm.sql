-- name: add_transfer
-- Note that tensors were carried over from a parent.
INSERT INTO mmdb.transfer (
    parent_id, parent_candidate_id, parent_state, candidate_id, model_id, similarity, coverage, options, reason,
    match_s, transfer_s
) VALUES (
    %(parent_id)s::bigint, %(parent_candidate_id)s::bigint, %(parent_state)s::bytea, %(candidate_id)s::bigint,
    %(model_id)s::bigint, %(similarity)s::double precision, %(coverage)s::double precision, %(options)s::jsonb,
    %(reason)s::text, %(match_s)s::double precision, %(transfer_s)s::double precision
)
RETURNING transfer_id;

-- name: add_transfer_tensor
-- Where one tensor of a child came from.
INSERT INTO mmdb.transfer_tensor (transfer_id, ordinal, path, parent_path, operator, fraction, reason)
VALUES (
    %(transfer_id)s::bigint, %(ordinal)s::integer, %(path)s::text, %(parent_path)s::text, %(operator)s::text,
    %(fraction)s::double precision, %(reason)s::text
);

-- name: add_warm_start
-- Note what a candidate begins with.
INSERT INTO mmdb.warm_start (candidate_id, transfer_id, state_hash, lr_scale, lr_epochs, reason, match_s)
VALUES (
    %(candidate_id)s::bigint, %(transfer_id)s::bigint, %(state_hash)s::bytea, %(lr_scale)s::double precision,
    %(lr_epochs)s::integer, %(reason)s::text, %(match_s)s::double precision
);

-- name: find_warm_start
-- What a candidate begins with, as far as that is decided.
SELECT
    b.candidate_id,
    CASE
        WHEN p.model_id IS NOT NULL THEN p.name || '@' || p.version::text
        WHEN t.parent_candidate_id IS NOT NULL THEN 'candidate ' || t.parent_candidate_id::text
    END AS parent,
    t.similarity,
    t.coverage,
    b.reason,
    b.state_hash
FROM mmdb.warm_start AS b
LEFT JOIN mmdb.transfer AS t ON b.transfer_id = t.transfer_id
LEFT JOIN mmdb.model AS p ON t.parent_id = p.model_id
WHERE b.candidate_id = %(candidate_id)s::bigint;

-- name: find_ended
-- Candidates of a run that rest or have ended without an error, with the best value of each.
SELECT
    o.candidate_id,
    o.config::text AS config,
    o.best_value
FROM mmdb.candidate_overview AS o
WHERE
    o.run = %(run)s::text
    AND o.candidate_id <> %(candidate_id)s::bigint
    AND o.status IN ('trained', 'stopped', 'resting')
    AND o.hops > 0
ORDER BY o.candidate_id;

-- name: find_adapted
-- The model that an adapted candidate began with, whose tensors its states leave out.
SELECT
    m.model_id,
    m.name,
    m.version
FROM mmdb.warm_start AS w
INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
INNER JOIN mmdb.model AS m ON t.parent_id = m.model_id
INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE w.candidate_id = %(candidate_id)s::bigint AND (r.architecture ->> 'adapted') IS NOT NULL;

-- name: find_base
-- The model of some weights that a candidate adapts, the one that it began with first, and the dataset whose columns it reads.
SELECT
    m.model_id,
    r.dataset_id
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.warm_start AS w ON c.candidate_id = w.candidate_id
LEFT JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
CROSS JOIN mmdb.model AS m
WHERE
    c.candidate_id = %(candidate_id)s::bigint
    AND m.weights_hash = %(weights_hash)s::bytea
    AND m.dropped_at IS NULL
ORDER BY (m.model_id = coalesce(t.parent_id, 0)) DESC, m.model_id ASC
LIMIT 1;
