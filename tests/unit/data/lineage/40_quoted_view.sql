-- case: a view with a quoted name, joined with the table under it
-- engines: postgres, duckdb

SELECT o."PatientId" AS patient, o."Peak" AS peak, max(v.temperature) AS warmest
FROM hospital."Vital Overview" AS o
JOIN hospital."VitalSigns" AS v ON v."PatientId" = o."PatientId" AND v."HeartRate" = o."Peak"
WHERE v."TakenAt" > '2024-01-01'
GROUP BY o."PatientId", o."Peak";

-- patient <- hospital."VitalSigns"."PatientId" via hospital."Vital Overview"
-- peak <- hospital."VitalSigns"."HeartRate" via hospital."Vital Overview"
-- warmest <- hospital."VitalSigns".temperature
-- filter <- hospital."VitalSigns"."TakenAt"
