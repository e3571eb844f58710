-- case: a view with a star, a view that is a union, and a table that a view reads too
-- engines: postgres, duckdb

SELECT k.sku, k.category, k.price, n.email, c.id AS customer
FROM shop.catalog AS k
CROSS JOIN shop.contacts AS n
JOIN shop.customers AS c ON c.name = n.name;

-- sku <- shop.products.sku via shop.catalog
-- category <- shop.categories.name via shop.catalog
-- price <- shop.products.price via shop.catalog
-- email <- shop.customers.email via shop.contacts
-- customer <- shop.customers.id
-- filter <- shop.products.category_id via shop.catalog
-- filter <- shop.categories.id via shop.catalog
-- filter <- shop.customers.name via shop.contacts
-- filter <- shop.customers.name
-- filter <- shop.staff.name via shop.contacts
