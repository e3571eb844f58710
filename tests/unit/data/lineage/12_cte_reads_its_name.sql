-- case: a CTE that is not recursive reads the table of its own name
-- engines: postgres, duckdb
-- search_path: shop

WITH orders AS (
    SELECT id, channel, 'x' AS status FROM orders WHERE status = 'paid'
)
SELECT id, channel, status FROM orders;

-- id <- shop.orders.id
-- channel <- shop.orders.channel
-- status <- nothing
-- filter <- shop.orders.status
