-- case: CASE: conditions and results feed
-- engines: postgres, duckdb

SELECT id,
    CASE WHEN sex = 'f' THEN 1 ELSE 0 END AS is_female,
    CASE postcode WHEN '1010' THEN name ELSE 'hidden' END AS shown,
    coalesce(nullif(postcode, ''), sex) AS place
FROM hospital.patients;

-- id <- hospital.patients.id
-- is_female <- hospital.patients.sex
-- shown <- hospital.patients.postcode
-- shown <- hospital.patients.name
-- place <- hospital.patients.postcode
-- place <- hospital.patients.sex
