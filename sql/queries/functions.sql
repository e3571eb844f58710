-- name: find_functions
-- The registered functions.
SELECT
    f.name,
    f.kind,
    f.target
FROM mmdb.function AS f
ORDER BY f.kind, f.name;

-- name: add_function
-- Register a function.
INSERT INTO mmdb.function (name, kind, target)
VALUES (%(name)s::text, %(kind)s::text, %(target)s::text);
