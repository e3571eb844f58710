-- case: t.* over a CTE that is a star itself, beside a column of a subquery with a star
-- engines: postgres, duckdb

WITH base AS (
    SELECT * FROM shop.payments WHERE amount > 0
)
SELECT b.*, x.stars, x.one
FROM base AS b
JOIN (SELECT r.*, 1 AS one FROM shop.reviews AS r) AS x ON x.customer_id = b.id;

-- id <- shop.payments.id
-- order_id <- shop.payments.order_id
-- method <- shop.payments.method
-- amount <- shop.payments.amount
-- paid_at <- shop.payments.paid_at
-- stars <- shop.reviews.stars
-- one <- nothing
-- filter <- shop.reviews.customer_id
