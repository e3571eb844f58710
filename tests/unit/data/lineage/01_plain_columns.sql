-- case: columns, a renamed column and an expression of one table
-- engines: postgres, duckdb

SELECT id, name AS customer, birth_year + 1 AS next_year
FROM shop.customers;

-- id <- shop.customers.id
-- customer <- shop.customers.name
-- next_year <- shop.customers.birth_year
