-- case: windows: what they partition and order by determines the value
-- engines: postgres, duckdb

SELECT device_id, taken_at,
    value - lag(value) OVER (PARTITION BY device_id, channel ORDER BY taken_at) AS change,
    row_number() OVER (PARTITION BY channel ORDER BY quality DESC) AS place,
    avg(value) OVER w AS moving
FROM sensors.readings
WINDOW w AS (
    PARTITION BY device_id ORDER BY taken_at ROWS BETWEEN 3 PRECEDING AND CURRENT ROW
);

-- device_id <- sensors.readings.device_id
-- taken_at <- sensors.readings.taken_at
-- change <- sensors.readings.value
-- change <- sensors.readings.device_id
-- change <- sensors.readings.channel
-- change <- sensors.readings.taken_at
-- place <- sensors.readings.channel
-- place <- sensors.readings.quality
-- moving <- sensors.readings.value
-- moving <- sensors.readings.device_id
-- moving <- sensors.readings.taken_at
