-- case: a union takes its names from the first branch, its values by position
-- engines: postgres, duckdb

SELECT id AS person, name AS label FROM shop.customers WHERE birth_year > 1950
UNION ALL
SELECT s.id, s.role FROM hospital.staff AS s
UNION ALL
SELECT 0, 'nobody';

-- person <- shop.customers.id
-- person <- hospital.staff.id
-- label <- shop.customers.name
-- label <- hospital.staff.role
-- filter <- shop.customers.birth_year
