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

-- name: add_tokenizer
-- Register the text of a tokenizer.json, which is data: whoever trains may.
INSERT INTO mmdb.function (name, kind, definition)
VALUES (%(name)s::text, 'tokenizer', %(definition)s::text);

-- name: find_tokenizer
-- The text of a tokenizer.json by its name.
SELECT f.definition
FROM mmdb.function AS f
WHERE f.kind = 'tokenizer' AND f.name = %(name)s::text AND f.definition IS NOT NULL;

-- name: find_same_tokenizer
-- The name under which the text of a tokenizer.json is registered.
SELECT f.name
FROM mmdb.function AS f
WHERE f.definition = %(definition)s::text
ORDER BY f.name;
