-- case: LATERAL without tables: its outputs are made of the columns beside it
-- engines: postgres, duckdb

SELECT i.order_id, n.net, t.tax
FROM shop.order_items AS i
CROSS JOIN LATERAL (SELECT i.quantity * i.unit_price AS net) AS n
CROSS JOIN LATERAL (SELECT n.net * (1 - i.discount) AS tax) AS t;

-- order_id <- shop.order_items.order_id
-- net <- shop.order_items.quantity
-- net <- shop.order_items.unit_price
-- tax <- shop.order_items.quantity
-- tax <- shop.order_items.unit_price
-- tax <- shop.order_items.discount
