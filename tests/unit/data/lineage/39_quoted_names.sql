-- case: quoted names with capitals and spaces, of tables, columns, aliases and outputs
-- engines: postgres, duckdb

SELECT "V s"."PatientId" AS "Patient", "V s"."HeartRate" AS heart_rate,
    "V s".temperature AS "Temp °C", l."ListPrice"
FROM hospital."VitalSigns" AS "V s"
JOIN shop."Price List" AS l ON l."Product Id" = "V s"."PatientId";

-- "Patient" <- hospital."VitalSigns"."PatientId"
-- heart_rate <- hospital."VitalSigns"."HeartRate"
-- "Temp °C" <- hospital."VitalSigns".temperature
-- "ListPrice" <- shop."Price List"."ListPrice"
-- filter <- shop."Price List"."Product Id"
