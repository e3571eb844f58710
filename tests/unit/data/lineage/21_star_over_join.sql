-- case: a star over a join with a subquery whose columns are renamed by its alias
-- engines: postgres, duckdb

SELECT *
FROM shop.order_items AS i
CROSS JOIN (SELECT name, country FROM shop.regions WHERE id = 1) AS r (region, land);

-- order_id <- shop.order_items.order_id
-- product_id <- shop.order_items.product_id
-- quantity <- shop.order_items.quantity
-- unit_price <- shop.order_items.unit_price
-- discount <- shop.order_items.discount
-- region <- shop.regions.name
-- land <- shop.regions.country
-- filter <- shop.regions.id
