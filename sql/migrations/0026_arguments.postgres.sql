-- Arrays become Python's lists, of 32 bytes a number, before a function can say no: so their types say it.
CREATE FUNCTION mmdb.too_long(numbers integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'An argument has % numbers.', numbers
    USING ERRCODE = 'MM176', HINT = 'It may have 16,777,216 for a model, and 1,000,000 for anything else.';
END
$$;
COMMENT ON FUNCTION mmdb.too_long(integer) IS 'Says that an array is longer than an argument may be.';
CREATE DOMAIN mmdb.numbers AS real[] CHECK (cardinality(value) <= 16777216 OR mmdb.too_long(cardinality(value)));
COMMENT ON DOMAIN mmdb.numbers IS 'The numbers of one row that a model takes.';
CREATE DOMAIN mmdb.sizes AS integer[] CHECK (cardinality(value) <= 1000000 OR mmdb.too_long(cardinality(value)));
COMMENT ON DOMAIN mmdb.sizes IS 'The shape of a model''s input.';
CREATE DOMAIN mmdb.ids AS bigint[] CHECK (cardinality(value) <= 1000000 OR mmdb.too_long(cardinality(value)));
COMMENT ON DOMAIN mmdb.ids IS 'Numbers of partitions or of candidates.';

DROP FUNCTION IF EXISTS mmdb.predict(text, real[]);
DROP FUNCTION IF EXISTS mmdb.train_group(bigint[], bigint, integer, jsonb);
DROP FUNCTION IF EXISTS mmdb.train_hops(bigint, bigint[], integer, boolean);
DROP FUNCTION IF EXISTS mmdb.common_prefix(text, text, integer[], integer, integer);
DROP FUNCTION IF EXISTS mmdb.match(text, integer, text, text, integer[], integer, integer);
