-- case: a CTE inside a subquery hides an outer CTE of its name
-- engines: postgres, duckdb

WITH t AS (
    SELECT id, name FROM shop.customers
)
SELECT a.name, b.name AS product
FROM t AS a
CROSS JOIN (
    WITH t AS (SELECT id, name FROM shop.products)
    SELECT name FROM t WHERE id = 1
) AS b;

-- name <- shop.customers.name
-- product <- shop.products.name
-- filter <- shop.products.id
