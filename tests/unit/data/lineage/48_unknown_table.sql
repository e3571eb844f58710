-- case: a table that the catalog does not know: named columns are its own, its star and a branch of a union are unresolved
-- engines: postgres, duckdb
-- hidden: CREATE TABLE sensors.gateways (serial text, vendor text)

SELECT g.*, d.model, upper(g.vendor) AS maker
FROM sensors.gateways AS g
JOIN sensors.devices AS d ON d.model = g.vendor
UNION ALL
SELECT w.name, w.name, p.name, p.sex
FROM hospital.wards AS w
CROSS JOIN hospital.patients AS p;

-- serial <- ?
-- serial <- hospital.wards.name
-- vendor <- ?
-- vendor <- hospital.wards.name
-- model <- sensors.devices.model
-- model <- hospital.patients.name
-- maker <- sensors.gateways.vendor
-- maker <- hospital.patients.sex
