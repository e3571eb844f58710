-- case: aggregates with FILTER and HAVING
-- engines: postgres, duckdb

SELECT ward_id,
    count(*) FILTER (WHERE severity > 3) AS severe,
    count(*) AS stays,
    avg(severity) FILTER (WHERE discharged_at IS NOT NULL) AS mean_severity
FROM hospital.admissions
GROUP BY ward_id
HAVING min(admitted_at) > '2020-01-01';

-- ward_id <- hospital.admissions.ward_id
-- severe <- hospital.admissions.severity
-- stays <- nothing
-- mean_severity <- hospital.admissions.severity
-- mean_severity <- hospital.admissions.discharged_at
-- filter <- hospital.admissions.admitted_at
