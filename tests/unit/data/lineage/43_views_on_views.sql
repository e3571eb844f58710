-- case: a view over three more in another schema, with a window and FILTER inside
-- engines: postgres, duckdb
-- search_path: hospital

SELECT ward, temperature
FROM ward_climate
WHERE ward_id > 2;

-- ward <- hospital.wards.name via hospital.ward_climate
-- temperature <- sensors.readings.value via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- temperature <- sensors.calibrations.factor via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- temperature <- sensors.calibrations.shift via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- temperature <- sensors.readings.channel via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- filter <- hospital.wards.id via hospital.ward_climate
-- filter <- hospital.wards.room_id via hospital.ward_climate
-- filter <- sensors.rooms.id via hospital.ward_climate, sensors.climate
-- filter <- sensors.rooms.name via hospital.ward_climate, sensors.climate
-- filter <- sensors.devices.id via hospital.ward_climate, sensors.climate
-- filter <- sensors.devices.room_id via hospital.ward_climate, sensors.climate
-- filter <- sensors.readings.device_id via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- filter <- sensors.readings.taken_at via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- filter <- sensors.calibrations.device_id via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
-- filter <- sensors.calibrations.valid_from via hospital.ward_climate, sensors.climate, sensors.latest, sensors.calibrated
