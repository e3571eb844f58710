-- case: IN and EXISTS as outputs: IN compares values, EXISTS has none of its own
-- engines: postgres, duckdb

SELECT d.id,
    d.room_id IN (SELECT w.room_id FROM hospital.wards AS w WHERE w.head_id > 0) AS in_ward,
    EXISTS (SELECT 1 FROM sensors.readings AS r WHERE r.device_id = d.id) AS is_used
FROM sensors.devices AS d
WHERE d.id IN (SELECT c.device_id FROM sensors.calibrations AS c WHERE c.factor > 0);

-- id <- sensors.devices.id
-- in_ward <- sensors.devices.room_id
-- in_ward <- hospital.wards.room_id
-- is_used <- nothing
-- filter <- hospital.wards.head_id
-- filter <- sensors.readings.device_id
-- filter <- sensors.calibrations.device_id
-- filter <- sensors.calibrations.factor
