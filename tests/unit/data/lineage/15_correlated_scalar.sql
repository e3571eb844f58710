-- case: a correlated scalar subquery: its output feeds, its WHERE filters
-- engines: postgres, duckdb

SELECT c.id, (
    SELECT max(o.ordered_at) FROM shop.orders AS o
    WHERE o.customer_id = c.id AND o.status <> 'cancelled'
) AS last_order
FROM shop.customers AS c;

-- id <- shop.customers.id
-- last_order <- shop.orders.ordered_at
-- filter <- shop.orders.customer_id
-- filter <- shop.orders.status
