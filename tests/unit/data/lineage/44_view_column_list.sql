-- case: a view whose columns are named by a list, over two more views
-- engines: postgres, duckdb

SELECT region_name, revenue, orders FROM shop.revenue;

-- region_name <- shop.regions.name via shop.revenue
-- revenue <- shop.order_items.quantity via shop.revenue, shop.paid_orders, shop.order_totals
-- revenue <- shop.order_items.unit_price via shop.revenue, shop.paid_orders, shop.order_totals
-- orders <- nothing
-- filter <- shop.regions.id via shop.revenue
-- filter <- shop.customers.id via shop.revenue
-- filter <- shop.customers.region_id via shop.revenue
-- filter <- shop.payments.order_id via shop.revenue, shop.paid_orders
-- filter <- shop.orders.id via shop.revenue, shop.paid_orders, shop.order_totals
-- filter <- shop.orders.customer_id via shop.revenue, shop.paid_orders, shop.order_totals
-- filter <- shop.orders.status via shop.revenue, shop.paid_orders, shop.order_totals
-- filter <- shop.order_items.order_id via shop.revenue, shop.paid_orders, shop.order_totals
