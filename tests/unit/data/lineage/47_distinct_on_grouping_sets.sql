-- case: DISTINCT ON in a subquery under grouping sets
-- engines: postgres, duckdb

SELECT latest.channel, c.region_id, count(latest.id) AS orders, avg(c.birth_year) AS mean_birth_year
FROM (
    SELECT DISTINCT ON (customer_id) customer_id, id, channel
    FROM shop.orders
    ORDER BY customer_id, ordered_at DESC
) AS latest
JOIN shop.customers AS c ON c.id = latest.customer_id
GROUP BY GROUPING SETS ((latest.channel, c.region_id), (latest.channel), ());

-- channel <- shop.orders.channel
-- region_id <- shop.customers.region_id
-- orders <- shop.orders.id
-- mean_birth_year <- shop.customers.birth_year
-- filter <- shop.orders.customer_id
-- filter <- shop.orders.ordered_at
-- filter <- shop.customers.id
