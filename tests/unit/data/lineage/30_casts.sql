-- case: casts in both forms, extract, nested functions
-- engines: postgres, duckdb

SELECT CAST(birth_year AS text) || ':' || region_id::text AS code,
    extract(year FROM created_at)::integer AS joined,
    lower(trim(email)) AS email,
    created_at::date AS day
FROM shop.customers
WHERE CAST(id AS text) LIKE '1%';

-- code <- shop.customers.birth_year
-- code <- shop.customers.region_id
-- joined <- shop.customers.created_at
-- email <- shop.customers.email
-- day <- shop.customers.created_at
-- filter <- shop.customers.id
