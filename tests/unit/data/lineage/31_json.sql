-- case: members of JSON columns, in outputs, in a join and in WHERE
-- engines: postgres, duckdb

SELECT c.id, c.profile ->> 'city' AS city, (c.profile -> 'address') ->> 'zip' AS zip,
    CAST(e.payload ->> 'level' AS integer) AS level
FROM shop.customers AS c
JOIN sensors.events AS e ON (e.payload ->> 'customer') = c.email
WHERE (c.profile ->> 'active') = 'true' AND e.kind = 'alarm';

-- id <- shop.customers.id
-- city <- shop.customers.profile
-- zip <- shop.customers.profile
-- level <- sensors.events.payload
-- filter <- shop.customers.email
-- filter <- sensors.events.kind
