-- case: a series of constants reads no table
-- engines: postgres, duckdb

SELECT d.id, s.n, d.room_id * s.n AS room_turn
FROM sensors.devices AS d
CROSS JOIN generate_series(1, 3) AS s (n);

-- id <- sensors.devices.id
-- n <- nothing
-- room_turn <- sensors.devices.room_id
