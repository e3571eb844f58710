-- case: two schemas have a table staff: the first of the search path is meant
-- engines: postgres, duckdb
-- search_path: hospital, shop

SELECT s.name, s.role, o.status
FROM staff AS s
JOIN orders AS o ON o.id = s.id;

-- name <- hospital.staff.name
-- role <- hospital.staff.role
-- status <- shop.orders.status
-- filter <- shop.orders.id
-- filter <- hospital.staff.id
