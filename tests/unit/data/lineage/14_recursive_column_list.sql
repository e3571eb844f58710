-- case: a recursive CTE with a column list, two names for one table
-- engines: postgres, duckdb

WITH RECURSIVE chain (person, boss, level) AS (
    SELECT id, manager_id, 1 FROM shop.staff
    UNION ALL
    SELECT c.person, s.manager_id, c.level + 1
    FROM chain AS c
    JOIN shop.staff AS s ON s.id = c.boss
    WHERE c.level < 5
)
SELECT person, boss, max(level) AS level
FROM chain
GROUP BY person, boss;

-- person <- shop.staff.id
-- boss <- shop.staff.manager_id
-- level <- nothing
