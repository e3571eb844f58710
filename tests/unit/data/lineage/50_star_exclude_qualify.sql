-- case: a star without some columns and with one replaced, and QUALIFY
-- engines: duckdb

SELECT * EXCLUDE (tags, profile, name) REPLACE (lower(name) AS email)
FROM shop.customers
QUALIFY row_number() OVER (PARTITION BY region_id ORDER BY length(tags)) = 1;

-- id <- shop.customers.id
-- email <- shop.customers.name
-- region_id <- shop.customers.region_id
-- birth_year <- shop.customers.birth_year
-- created_at <- shop.customers.created_at
-- filter <- shop.customers.tags
