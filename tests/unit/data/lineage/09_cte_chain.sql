-- case: three CTEs, each over the one before; an output that nobody uses is no source
-- engines: postgres, duckdb

WITH lines AS (
    SELECT order_id, quantity * unit_price AS gross, discount FROM shop.order_items
), totals AS (
    SELECT order_id, sum(gross) AS gross, max(discount) AS discount FROM lines GROUP BY order_id
), big AS (
    SELECT * FROM totals WHERE gross > 100
)
SELECT o.customer_id, avg(b.gross) AS mean_gross
FROM big AS b
JOIN shop.orders AS o ON o.id = b.order_id
GROUP BY o.customer_id;

-- customer_id <- shop.orders.customer_id
-- mean_gross <- shop.order_items.quantity
-- mean_gross <- shop.order_items.unit_price
-- filter <- shop.orders.id
-- filter <- shop.order_items.order_id
