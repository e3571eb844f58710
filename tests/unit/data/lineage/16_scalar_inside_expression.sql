-- case: a scalar subquery inside an expression and another inside WHERE
-- engines: postgres, duckdb

SELECT i.order_id, i.unit_price - (
    SELECT avg(p.price) FROM shop.products AS p WHERE p.id = i.product_id
) AS above_list
FROM shop.order_items AS i
WHERE i.quantity > (SELECT min(r.stars) FROM shop.reviews AS r WHERE r.product_id = i.product_id);

-- order_id <- shop.order_items.order_id
-- above_list <- shop.order_items.unit_price
-- above_list <- shop.products.price
-- filter <- shop.products.id
-- filter <- shop.order_items.product_id
-- filter <- shop.order_items.quantity
-- filter <- shop.reviews.stars
-- filter <- shop.reviews.product_id
