-- case: a function of the user's that returns a table may read anything: unresolved
-- engines: postgres, duckdb

SELECT p.name, l.product_id, l.quantity * p.price AS value
FROM shop.order_lines(5) AS l
JOIN shop.products AS p ON p.id = l.product_id;

-- name <- shop.products.name
-- product_id <- ?
-- value <- shop.products.price
-- value <- ?
-- filter <- shop.products.id
