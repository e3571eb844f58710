-- name: add_row
-- One measurement of a calibration.
INSERT INTO mmdb.profile (
    fingerprint, measured_at, kind, size, size_unit, value, unit, deviation, samples, machine, versions
)
VALUES (
    %(fingerprint)s::text, %(measured_at)s::timestamptz, %(kind)s::text, %(size)s::double precision,
    %(size_unit)s::text, %(value)s::double precision, %(unit)s::text, %(deviation)s::double precision,
    %(samples)s::integer, %(machine)s::jsonb, %(versions)s::jsonb
);

-- name: find_rows
-- The latest measurements of each kind under a fingerprint.
SELECT
    p.kind,
    p.size,
    p.value,
    p.unit,
    p.deviation,
    p.samples,
    extract(EPOCH FROM p.measured_at)::double precision AS measured
FROM mmdb.profile AS p
INNER JOIN (
    SELECT
        q.kind,
        max(q.measured_at) AS measured_at
    FROM mmdb.profile AS q
    WHERE q.fingerprint = %(fingerprint)s::text
    GROUP BY q.kind
) AS l ON p.kind = l.kind AND p.measured_at = l.measured_at
WHERE p.fingerprint = %(fingerprint)s::text
ORDER BY p.kind, p.size;

-- name: find_latest
-- The last calibration of a node by sessions of an engine, whatever the versions.
SELECT
    p.machine::text AS machine,
    p.versions::text AS versions,
    extract(EPOCH FROM p.measured_at)::double precision AS measured
FROM mmdb.profile AS p
WHERE p.machine ->> 'node' = %(node)s::text AND p.versions ->> 'engine' = %(engine)s::text
ORDER BY p.measured_at DESC
LIMIT 1;

-- name: find_readable
-- The partition with the most bytes, to measure reading by.
SELECT p.part_id
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
WHERE d.dropped_at IS NULL
ORDER BY p.byte_count DESC, p.part_id ASC
LIMIT 1;
