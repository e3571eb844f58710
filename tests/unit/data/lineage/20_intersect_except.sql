-- case: INTERSECT feeds from both branches; what EXCEPT takes away only filters
-- engines: postgres, duckdb

(SELECT product_id AS item FROM shop.order_items
INTERSECT
SELECT product_id FROM shop.reviews)
EXCEPT
SELECT id FROM shop.products WHERE price IS NULL;

-- item <- shop.order_items.product_id
-- item <- shop.reviews.product_id
-- filter <- shop.products.id
-- filter <- shop.products.price
