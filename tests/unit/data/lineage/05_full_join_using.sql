-- case: a full join with USING, grouped by its column
-- engines: postgres, duckdb

SELECT order_id, count(*) AS lines, sum(p.amount) AS paid
FROM shop.order_items AS i
FULL JOIN shop.payments AS p USING (order_id)
GROUP BY order_id;

-- order_id <- shop.order_items.order_id
-- order_id <- shop.payments.order_id
-- lines <- nothing
-- paid <- shop.payments.amount
