-- case: a recursive CTE joined with a table
-- engines: postgres, duckdb

WITH RECURSIVE tree AS (
    SELECT id, parent_id, name AS path, 0 AS depth
    FROM shop.categories
    WHERE parent_id IS NULL
    UNION ALL
    SELECT c.id, c.parent_id, t.path || '/' || c.name, t.depth + 1
    FROM shop.categories AS c
    JOIN tree AS t ON t.id = c.parent_id
)
SELECT p.sku, t.path, t.depth
FROM tree AS t
JOIN shop.products AS p ON p.category_id = t.id;

-- sku <- shop.products.sku
-- path <- shop.categories.name
-- depth <- nothing
-- filter <- shop.products.category_id
-- filter <- shop.categories.id
-- filter <- shop.categories.parent_id
