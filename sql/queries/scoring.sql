-- name: find_table
-- A table with its key, and a column that is to be filled; names as SQL text where they end with sql.
SELECT
    n.nspname::text AS schema_name,
    c.relname::text AS table_name,
    pg_catalog.quote_ident(n.nspname::text) || '.' || pg_catalog.quote_ident(c.relname::text) AS table_sql,
    -- Rows of a table that inherits from it are none that were inserted.
    CASE c.relkind WHEN 'r' THEN 'ONLY ' ELSE '' END
    || pg_catalog.quote_ident(n.nspname::text) || '.' || pg_catalog.quote_ident(c.relname::text) AS own_rows_sql,
    pg_catalog.quote_ident(n.nspname::text) AS schema_sql,
    c.relkind IN ('r', 'p') AS is_table,
    pg_has_role(c.relowner, 'USAGE') AS is_own,
    k.attname::text AS key_name,
    pg_catalog.quote_ident(kn.nspname::text) || '.' || pg_catalog.quote_ident(kt.typname::text) AS key_type,
    kt.typcategory IN ('A', 'C') AS has_parts,
    a.attname::text AS column_name,
    pg_catalog.quote_ident(an.nspname::text) || '.' || pg_catalog.quote_ident(at.typname::text) AS column_type,
    format_type(a.atttypid, CASE WHEN at.typname = 'vector' THEN a.atttypmod END) AS column_kind,
    a.attgenerated <> '' OR a.attidentity <> '' OR a.attnum = k.attnum AS is_made
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
LEFT JOIN pg_catalog.pg_index AS i ON c.oid = i.indrelid AND i.indisprimary AND i.indnkeyatts = 1
LEFT JOIN pg_catalog.pg_attribute AS k ON c.oid = k.attrelid AND k.attnum = i.indkey[0]
LEFT JOIN pg_catalog.pg_type AS kt ON k.atttypid = kt.oid
LEFT JOIN pg_catalog.pg_namespace AS kn ON kt.typnamespace = kn.oid
LEFT JOIN pg_catalog.pg_attribute AS a
    ON c.oid = a.attrelid AND a.attname = %(into_column)s::text AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type AS at ON a.atttypid = at.oid
LEFT JOIN pg_catalog.pg_namespace AS an ON at.typnamespace = an.oid
WHERE c.oid = to_regclass(%(target)s::text)::oid;

-- name: write_function
-- The statements that make the function of a trigger: it runs as who makes it, who alone may use it.
SELECT 'CREATE FUNCTION ' || %(name)s::text || $ddl$() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $mmdb_score$
-- Made by score_on_insert or embed_on_insert. Arguments: its number, the key, the column, the model, the types of key
-- and column, and which embedding.
DECLARE
    keys text;
    state text;
    said text;
BEGIN
    EXECUTE 'SELECT pg_catalog.array_agg(n.' || quote_ident(tg_argv[1]) || ')::text FROM mmdb_new AS n' INTO keys;
    IF keys IS NULL THEN
        RETURN NULL;
    END IF;
    BEGIN
        EXECUTE 'UPDATE ' || CASE WHEN EXISTS (SELECT FROM pg_class AS c WHERE c.oid = tg_relid AND c.relkind = 'r') THEN 'ONLY ' ELSE '' END
            || quote_ident(tg_table_schema) || '.' || quote_ident(tg_table_name) || ' AS t SET '
            || quote_ident(tg_argv[2]) || ' = p.prediction::' || tg_argv[5]
            || ' FROM mmdb.score_rows($1, $2, $3, $4, $5) AS p WHERE t.'
            || quote_ident(tg_argv[1]) || ' = p.row_key::' || tg_argv[4]
        USING tg_argv[0]::bigint, quote_ident(tg_table_schema) || '.' || quote_ident(tg_table_name),
            keys, tg_argv[3], tg_argv[6];
    EXCEPTION WHEN OTHERS THEN  -- a cancel and a timeout are none of these
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, said = MESSAGE_TEXT;
        IF state LIKE '40%%' OR state LIKE '57%%' OR state IN ('MM409', 'MM410', 'MM411') THEN
            RAISE;
        END IF;
        RAISE WARNING USING MESSAGE = 'New rows of ' || tg_table_name || ' are not predicted: ' || said;
        BEGIN
            PERFORM mmdb.note_unscored(tg_argv[0]::bigint, cardinality(keys::text[]), state, said);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING USING MESSAGE = 'Nor is that written down: ' || SQLERRM;
        END;
    END;
    RETURN NULL;
END
$mmdb_score$;
REVOKE ALL ON FUNCTION $ddl$ || %(name)s::text || '() FROM public' AS ddl;

-- name: write_trigger
-- The statement that makes a trigger.
SELECT
    'CREATE TRIGGER ' || %(trigger)s::text || ' AFTER INSERT ON ' || %(table_sql)s::text
    || ' REFERENCING NEW TABLE AS mmdb_new FOR EACH STATEMENT EXECUTE FUNCTION ' || %(name)s::text || '('
    || (
        SELECT string_agg(quote_literal(g.given), ', ' ORDER BY g.place)
        FROM pg_catalog.unnest(%(arguments)s::text[]) WITH ORDINALITY AS g (given, place)
    ) || ')' AS ddl;

-- name: find_trigger
-- The function of the trigger by which a column is filled.
SELECT
    pg_catalog.quote_ident(t.tgname::text) AS trigger_sql,
    t.tgfoid::regprocedure::text AS function_sql,
    pg_has_role(p.proowner, 'USAGE') AS is_own
FROM pg_catalog.pg_trigger AS t
INNER JOIN pg_catalog.pg_proc AS p ON t.tgfoid = p.oid
WHERE t.tgrelid = to_regclass(%(target)s::text)::oid AND t.tgname = %(name)s::text;

-- name: add_scoring
-- Record a column that a model fills.
INSERT INTO mmdb.scoring (schema_name, table_name, column_name, key_name, model, embedding)
VALUES (
    %(schema_name)s::text, %(table_name)s::text, %(column_name)s::text, %(key_name)s::text, %(model)s::text,
    %(embedding)s::text
)
RETURNING scoring_id;

-- name: find_scorings
-- Numbers of the columns that are filled, by table and column.
SELECT s.scoring_id
FROM mmdb.scoring AS s
WHERE
    s.schema_name = %(schema_name)s::text AND s.table_name = %(table_name)s::text
    AND s.column_name = %(column_name)s::text
ORDER BY s.scoring_id DESC;

-- name: has_scoring
-- Whether a model fills the column of a number.
SELECT count(*) > 0 AS found
FROM mmdb.scoring_overview AS s
WHERE s.scoring_id = %(scoring_id)s::bigint;

-- name: delete_failures
-- Delete what is written of rows without predictions.
DELETE FROM mmdb.scoring_failure
WHERE scoring_id = %(scoring_id)s::bigint;

-- name: delete_scoring
-- Delete the record of a column that a model fills.
DELETE FROM mmdb.scoring
WHERE scoring_id = %(scoring_id)s::bigint;

-- name: add_failure
-- Write down rows that were left without a prediction.
INSERT INTO mmdb.scoring_failure (scoring_id, row_count, row_key, sqlstate, message)
VALUES (
    %(scoring_id)s::bigint, %(row_count)s::bigint, %(row_key)s::text, %(sqlstate)s::text, %(message)s::text
);

-- name: name_keys
-- Say which rows the next query reads.
SELECT set_config('mmdb.scored_keys', %(keys)s::text, TRUE);

-- name: count_keys
-- How many keys an array has.
SELECT pg_catalog.cardinality((%(keys)s::text)::text[]) AS keys;

-- name: split_keys
-- The keys of an array, as texts.
SELECT k.key
FROM pg_catalog.unnest((%(keys)s::text)::text[]) AS k (key);
