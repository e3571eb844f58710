-- case: a CTE with the name of a table of the search path, its columns renamed crosswise
-- engines: postgres, duckdb
-- search_path: shop

WITH orders AS (
    SELECT id AS customer_id, customer_id AS id FROM shop.orders WHERE status = 'paid'
)
SELECT id, customer_id FROM orders;

-- id <- shop.orders.customer_id
-- customer_id <- shop.orders.id
-- filter <- shop.orders.status
