-- What calibrations have measured.

CREATE OR REPLACE VIEW mmdb.profile_overview AS
WITH latest AS (
    SELECT
        q.fingerprint,
        q.kind,
        max(q.measured_at) AS measured_at
    FROM mmdb.profile AS q
    GROUP BY q.fingerprint, q.kind
)

SELECT
    p.machine ->> 'node' AS node,
    p.kind,
    p.size,
    p.size_unit,
    p.value,
    p.unit,
    cast(p.size AS double precision) / nullif(p.value, 0) AS per_s,
    p.deviation,
    p.samples,
    p.measured_at,
    p.measured_at < now() - cast('30 days' AS interval) AS is_old,
    p.machine ->> 'cpu' AS processor,
    p.versions ->> 'torch' AS torch,
    p.versions ->> 'engine' AS engine,
    p.fingerprint
FROM mmdb.profile AS p
INNER JOIN latest AS l
    ON p.fingerprint = l.fingerprint AND p.kind = l.kind AND p.measured_at = l.measured_at;
COMMENT ON VIEW mmdb.profile_overview IS 'The last measurements of each machine with its versions, by kind and size.';
