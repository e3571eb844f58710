-- case: a star over a natural join
-- engines: postgres, duckdb

SELECT *
FROM (SELECT device_id, channel, value FROM sensors.readings) AS a
NATURAL JOIN (SELECT device_id, factor FROM sensors.calibrations) AS b;

-- device_id <- sensors.readings.device_id
-- device_id <- sensors.calibrations.device_id
-- channel <- sensors.readings.channel
-- value <- sensors.readings.value
-- factor <- sensors.calibrations.factor
