-- case: a window that only filters, in a subquery with a star
-- engines: postgres, duckdb

SELECT ranked.product_id, ranked.stars, ranked.body
FROM (
    SELECT r.*, row_number() OVER (PARTITION BY r.product_id ORDER BY r.written_at DESC, r.id) AS n
    FROM shop.reviews AS r
) AS ranked
WHERE ranked.n <= 3;

-- product_id <- shop.reviews.product_id
-- stars <- shop.reviews.stars
-- body <- shop.reviews.body
-- filter <- shop.reviews.written_at
-- filter <- shop.reviews.id
