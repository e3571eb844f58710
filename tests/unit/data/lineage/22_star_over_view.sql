-- case: a star over a view on a view
-- engines: postgres, duckdb

SELECT * FROM shop.paid_orders;

-- order_id <- shop.orders.id via shop.paid_orders, shop.order_totals
-- customer_id <- shop.orders.customer_id via shop.paid_orders, shop.order_totals
-- total <- shop.order_items.quantity via shop.paid_orders, shop.order_totals
-- total <- shop.order_items.unit_price via shop.paid_orders, shop.order_totals
-- method <- shop.payments.method via shop.paid_orders
-- filter <- shop.orders.status via shop.paid_orders, shop.order_totals
-- filter <- shop.order_items.order_id via shop.paid_orders, shop.order_totals
-- filter <- shop.payments.order_id via shop.paid_orders
