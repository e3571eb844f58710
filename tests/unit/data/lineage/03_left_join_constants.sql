-- case: left joins, a default, constants
-- engines: postgres, duckdb

SELECT c.id, coalesce(p.amount, 0) AS amount, 1 AS weight, 'shop' AS origin
FROM shop.customers AS c
LEFT JOIN shop.orders AS o ON o.customer_id = c.id AND o.channel = 'web'
LEFT JOIN shop.payments AS p ON p.order_id = o.id;

-- id <- shop.customers.id
-- amount <- shop.payments.amount
-- weight <- nothing
-- origin <- nothing
-- filter <- shop.orders.customer_id
-- filter <- shop.orders.channel
-- filter <- shop.payments.order_id
-- filter <- shop.orders.id
