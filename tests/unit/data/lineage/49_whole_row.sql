-- case: a whole row as a value is unresolved; the columns beside it are not
-- engines: postgres, duckdb

SELECT c.id, c AS customer, p.kind
FROM shop.regions AS c
JOIN hospital.people AS p ON p.id = c.id;

-- id <- shop.regions.id
-- customer <- ?
-- kind <- hospital.staff.role via hospital.people
-- filter <- hospital.patients.id via hospital.people
-- filter <- hospital.staff.id via hospital.people
-- filter <- hospital.patients.name via hospital.people
-- filter <- hospital.staff.name via hospital.people
