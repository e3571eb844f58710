-- case: LATERAL with an aggregate over a join
-- engines: postgres, duckdb

SELECT c.id, spent.total, spent.payments
FROM shop.customers AS c
CROSS JOIN LATERAL (
    SELECT sum(p.amount) AS total, count(*) AS payments
    FROM shop.orders AS o
    JOIN shop.payments AS p ON p.order_id = o.id
    WHERE o.customer_id = c.id
) AS spent;

-- id <- shop.customers.id
-- total <- shop.payments.amount
-- payments <- nothing
-- filter <- shop.payments.order_id
-- filter <- shop.orders.id
-- filter <- shop.orders.customer_id
