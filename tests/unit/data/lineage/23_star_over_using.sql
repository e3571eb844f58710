-- case: a star over USING: the common column once, then the rest
-- engines: postgres, duckdb

SELECT *
FROM (SELECT id AS order_id, channel FROM shop.orders) AS o
JOIN shop.order_items AS i USING (order_id);

-- order_id <- shop.orders.id
-- order_id <- shop.order_items.order_id
-- channel <- shop.orders.channel
-- product_id <- shop.order_items.product_id
-- quantity <- shop.order_items.quantity
-- unit_price <- shop.order_items.unit_price
-- discount <- shop.order_items.discount
