-- The catalog of the golden lineage queries: a shop, sensors and a hospital, in three schemas.
-- Run whole on PostgreSQL and on DuckDB; a statement after "-- only: <engine>" is for that one.

CREATE SCHEMA shop;
CREATE SCHEMA sensors;
CREATE SCHEMA hospital;

-- shop: 10 tables

CREATE TABLE shop.regions (id integer, name text, country text);
CREATE TABLE shop.customers (
    id integer, name text, email text, region_id integer, birth_year integer,
    tags text[], profile json, created_at timestamp
);
CREATE TABLE shop.categories (id integer, parent_id integer, name text);
CREATE TABLE shop.products (
    id integer, sku text, name text, category_id integer, price double precision
);
CREATE TABLE shop.orders (
    id integer, customer_id integer, status text, ordered_at timestamp, channel text
);
CREATE TABLE shop.order_items (
    order_id integer, product_id integer, quantity integer,
    unit_price double precision, discount double precision
);
CREATE TABLE shop.payments (
    id integer, order_id integer, method text, amount double precision, paid_at timestamp
);
CREATE TABLE shop.reviews (
    id integer, product_id integer, customer_id integer, stars integer, body text,
    written_at timestamp
);
CREATE TABLE shop.staff (
    id integer, name text, manager_id integer, region_id integer, salary double precision
);
CREATE TABLE shop."Price List" (
    "Product Id" integer, "ListPrice" double precision, valid_from date
);

-- sensors: 5 tables

CREATE TABLE sensors.rooms (id integer, name text, building text, floor integer);
CREATE TABLE sensors.devices (
    id integer, room_id integer, model text, limits double precision[]
);
CREATE TABLE sensors.readings (
    device_id integer, taken_at timestamp, channel text, value double precision, quality integer
);
CREATE TABLE sensors.calibrations (
    device_id integer, valid_from timestamp, factor double precision, shift double precision
);
CREATE TABLE sensors.events (
    id integer, device_id integer, kind text, payload json, happened_at timestamp
);

-- hospital: 7 tables; staff and events are names of other schemas too

CREATE TABLE hospital.patients (
    id integer, name text, birth_date date, sex text, postcode text
);
CREATE TABLE hospital.wards (id integer, name text, room_id integer, head_id integer);
CREATE TABLE hospital.admissions (
    id integer, patient_id integer, ward_id integer, admitted_at timestamp,
    discharged_at timestamp, severity integer
);
CREATE TABLE hospital.lab_results (
    admission_id integer, test text, value double precision, unit text, measured_at timestamp
);
CREATE TABLE hospital.staff (id integer, name text, ward_id integer, role text);
CREATE TABLE hospital.events (id integer, patient_id integer, kind text, happened_at timestamp);
CREATE TABLE hospital."VitalSigns" (
    "PatientId" integer, "HeartRate" integer, "TakenAt" timestamp, temperature double precision
);

-- views of the shop: totals <- paid_orders <- revenue; a star; a union

CREATE VIEW shop.order_totals AS
SELECT o.id AS order_id, o.customer_id, o.status, sum(i.quantity * i.unit_price) AS total
FROM shop.orders AS o
JOIN shop.order_items AS i ON i.order_id = o.id
GROUP BY o.id, o.customer_id, o.status;

CREATE VIEW shop.paid_orders AS
SELECT t.order_id, t.customer_id, t.total, p.method
FROM shop.order_totals AS t
JOIN shop.payments AS p ON p.order_id = t.order_id
WHERE t.status <> 'cancelled';

CREATE VIEW shop.revenue (region_name, revenue, orders) AS
SELECT r.name, sum(p.total), count(*)
FROM shop.paid_orders AS p
JOIN shop.customers AS c ON c.id = p.customer_id
JOIN shop.regions AS r ON r.id = c.region_id
GROUP BY r.name;

CREATE VIEW shop.catalog AS
SELECT p.*, c.name AS category
FROM shop.products AS p
JOIN shop.categories AS c ON c.id = p.category_id;

CREATE VIEW shop.contacts AS
SELECT name, email FROM shop.customers
UNION ALL
SELECT name, NULL FROM shop.staff;

-- views of the sensors: calibrated <- latest <- climate

CREATE VIEW sensors.calibrated AS
SELECT r.device_id, r.taken_at, r.channel, r.value * c.factor + c.shift AS value
FROM sensors.readings AS r
JOIN sensors.calibrations AS c ON c.device_id = r.device_id AND r.taken_at >= c.valid_from;

CREATE VIEW sensors.latest AS
SELECT ranked.device_id, ranked.channel, ranked.value, ranked.taken_at
FROM (
    SELECT c.*, row_number() OVER (
        PARTITION BY c.device_id, c.channel ORDER BY c.taken_at DESC
    ) AS age
    FROM sensors.calibrated AS c
) AS ranked
WHERE ranked.age = 1;

CREATE VIEW sensors.climate AS
SELECT m.id AS room_id, m.name AS room,
    avg(l.value) FILTER (WHERE l.channel = 'temperature') AS temperature
FROM sensors.latest AS l
JOIN sensors.devices AS d ON d.id = l.device_id
JOIN sensors.rooms AS m ON m.id = d.room_id
GROUP BY m.id, m.name;

-- views of the hospital: ward_climate reads the sensors'; mixed case; a union that drops duplicates

CREATE VIEW hospital.ward_climate AS
SELECT w.id AS ward_id, w.name AS ward, c.temperature
FROM hospital.wards AS w
JOIN sensors.climate AS c ON c.room_id = w.room_id;

CREATE VIEW hospital.stays AS
SELECT a.id AS admission_id, a.patient_id, w.name AS ward,
    CASE WHEN a.discharged_at IS NULL THEN 'open' ELSE 'closed' END AS state
FROM hospital.admissions AS a
LEFT JOIN hospital.wards AS w ON w.id = a.ward_id;

CREATE VIEW hospital.people AS
SELECT id, name, 'patient' AS kind FROM hospital.patients
UNION
SELECT id, name, role FROM hospital.staff;

CREATE VIEW hospital."Vital Overview" AS
SELECT "PatientId", max("HeartRate") AS "Peak"
FROM hospital."VitalSigns"
GROUP BY "PatientId";

-- only: postgres
CREATE MATERIALIZED VIEW shop.best_customers AS
SELECT t.customer_id, sum(t.total) AS spent
FROM shop.order_totals AS t
GROUP BY t.customer_id;

-- a function that reads a table: its columns cannot be followed

-- only: postgres
CREATE FUNCTION shop.order_lines(wanted integer)
RETURNS TABLE (product_id integer, quantity integer)
LANGUAGE sql STABLE
AS 'SELECT i.product_id, i.quantity FROM shop.order_items AS i WHERE i.order_id = wanted';

-- only: duckdb
CREATE MACRO shop.order_lines(wanted) AS TABLE
SELECT i.product_id, i.quantity FROM shop.order_items AS i WHERE i.order_id = wanted;
