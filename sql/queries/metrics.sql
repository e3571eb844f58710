-- name: read_metrics
-- What mmdb does, family by family.
SELECT
    m.name,
    m.type,
    m.help,
    m.label,
    m.label_value,
    m.value
FROM mmdb.metric AS m
ORDER BY m.name, m.label_value;

-- name: read_server_metrics
-- What the database holds and its server does, family by family.
SELECT
    m.name,
    m.type,
    m.help,
    m.label,
    m.label_value,
    m.value
FROM mmdb.server_metric AS m
ORDER BY m.name, m.label_value;
