-- case: a materialized view over a view
-- engines: postgres

SELECT b.customer_id, b.spent, c.name
FROM shop.best_customers AS b
JOIN shop.customers AS c ON c.id = b.customer_id;

-- customer_id <- shop.orders.customer_id via shop.best_customers, shop.order_totals
-- spent <- shop.order_items.quantity via shop.best_customers, shop.order_totals
-- spent <- shop.order_items.unit_price via shop.best_customers, shop.order_totals
-- name <- shop.customers.name
-- filter <- shop.customers.id
-- filter <- shop.orders.id via shop.best_customers, shop.order_totals
-- filter <- shop.orders.status via shop.best_customers, shop.order_totals
-- filter <- shop.order_items.order_id via shop.best_customers, shop.order_totals
