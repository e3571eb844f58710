-- case: names in capitals, without quotes and without tables, in a join
-- engines: postgres, duckdb

SELECT SKU AS sku, Quantity AS quantity, I.UNIT_PRICE AS paid_price, Price AS list_price
FROM SHOP.Order_Items AS I
JOIN shop.PRODUCTS AS p ON PRODUCT_ID = P.id
WHERE DISCOUNT < 0.5;

-- sku <- shop.products.sku
-- quantity <- shop.order_items.quantity
-- paid_price <- shop.order_items.unit_price
-- list_price <- shop.products.price
-- filter <- shop.order_items.product_id
-- filter <- shop.products.id
-- filter <- shop.order_items.discount
