-- case: an element, an array made of columns, and unnest in the SELECT list
-- engines: postgres, duckdb

SELECT d.id, d.limits[1] AS lowest, ARRAY[d.id, d.room_id] AS pair, unnest(d.limits) AS each_limit
FROM sensors.devices AS d
WHERE d.model = ANY(ARRAY['a', 'b']);

-- id <- sensors.devices.id
-- lowest <- sensors.devices.limits
-- pair <- sensors.devices.id
-- pair <- sensors.devices.room_id
-- each_limit <- sensors.devices.limits
-- filter <- sensors.devices.model
