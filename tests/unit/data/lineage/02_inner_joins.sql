-- case: four tables joined, filtered and ordered
-- engines: postgres, duckdb

SELECT o.id AS order_id, c.name AS customer, r.name AS region,
    i.quantity * i.unit_price * (1 - i.discount) AS net
FROM shop.orders AS o
JOIN shop.customers AS c ON c.id = o.customer_id
JOIN shop.regions AS r ON r.id = c.region_id
JOIN shop.order_items AS i ON i.order_id = o.id
WHERE o.status = 'paid'
ORDER BY o.ordered_at;

-- order_id <- shop.orders.id
-- customer <- shop.customers.name
-- region <- shop.regions.name
-- net <- shop.order_items.quantity
-- net <- shop.order_items.unit_price
-- net <- shop.order_items.discount
-- filter <- shop.customers.id
-- filter <- shop.orders.customer_id
-- filter <- shop.regions.id
-- filter <- shop.customers.region_id
-- filter <- shop.order_items.order_id
-- filter <- shop.orders.status
-- filter <- shop.orders.ordered_at
