-- case: the column of USING, named without a table
-- engines: postgres, duckdb

SELECT device_id, r.value, c.factor
FROM sensors.readings AS r
JOIN sensors.calibrations AS c USING (device_id)
WHERE r.taken_at >= c.valid_from;

-- device_id <- sensors.readings.device_id
-- device_id <- sensors.calibrations.device_id
-- value <- sensors.readings.value
-- factor <- sensors.calibrations.factor
-- filter <- sensors.readings.taken_at
-- filter <- sensors.calibrations.valid_from
