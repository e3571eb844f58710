-- case: EXISTS and NOT EXISTS in WHERE
-- engines: postgres, duckdb

SELECT p.id, p.name
FROM hospital.patients AS p
WHERE EXISTS (
    SELECT 1 FROM hospital.admissions AS a WHERE a.patient_id = p.id AND a.severity >= 4
) AND NOT EXISTS (
    SELECT 1 FROM hospital.events AS e WHERE e.patient_id = p.id AND e.kind = 'death'
);

-- id <- hospital.patients.id
-- name <- hospital.patients.name
-- filter <- hospital.admissions.patient_id
-- filter <- hospital.admissions.severity
-- filter <- hospital.events.patient_id
-- filter <- hospital.events.kind
