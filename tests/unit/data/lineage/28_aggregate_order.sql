-- case: an aggregate with an order and DISTINCT; grouped by a column that is not shown
-- engines: postgres, duckdb

SELECT string_agg(name, ', ' ORDER BY price DESC) AS names, count(DISTINCT sku) AS skus
FROM shop.products
GROUP BY category_id;

-- names <- shop.products.name
-- names <- shop.products.price
-- skus <- shop.products.sku
-- filter <- shop.products.category_id
