-- case: the same name under another search path, beside the other table by its schema
-- engines: postgres, duckdb
-- search_path: shop, sensors, hospital

SELECT staff.name, salary, doctor.name AS doctor, e.kind
FROM staff
JOIN hospital.staff AS doctor ON doctor.id = staff.id
JOIN events AS e ON e.device_id = staff.region_id;

-- name <- shop.staff.name
-- salary <- shop.staff.salary
-- doctor <- hospital.staff.name
-- kind <- sensors.events.kind
-- filter <- hospital.staff.id
-- filter <- shop.staff.id
-- filter <- sensors.events.device_id
-- filter <- shop.staff.region_id
