-- case: unnest of a column in FROM: its argument feeds
-- engines: postgres, duckdb

SELECT c.id, t.tag, r.name AS region
FROM shop.customers AS c
CROSS JOIN unnest(c.tags) AS t (tag)
JOIN shop.regions AS r ON r.id = c.region_id;

-- id <- shop.customers.id
-- tag <- shop.customers.tags
-- region <- shop.regions.name
-- filter <- shop.regions.id
-- filter <- shop.customers.region_id
