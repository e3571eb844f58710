-- case: a table joined with itself
-- engines: postgres, duckdb

SELECT e.name AS employee, m.name AS manager, e.salary - m.salary AS gap
FROM shop.staff AS e
LEFT JOIN shop.staff AS m ON m.id = e.manager_id;

-- employee <- shop.staff.name
-- manager <- shop.staff.name
-- gap <- shop.staff.salary
-- filter <- shop.staff.id
-- filter <- shop.staff.manager_id
