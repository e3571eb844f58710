-- case: VALUES joined as a table
-- engines: postgres, duckdb

SELECT o.id, v.label, v.weight
FROM shop.orders AS o
JOIN (VALUES ('paid', 'Paid', 1.0), ('open', 'Open', 0.5)) AS v (status, label, weight)
    ON v.status = o.status;

-- id <- shop.orders.id
-- label <- nothing
-- weight <- nothing
-- filter <- shop.orders.status
