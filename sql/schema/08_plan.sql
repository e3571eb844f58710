-- What machines and databases cost, as measured.

CREATE TABLE mmdb.profile (
    fingerprint text NOT NULL,
    measured_at timestamptz NOT NULL,
    kind text NOT NULL,
    size double precision NOT NULL,
    size_unit text NOT NULL,
    value double precision NOT NULL,
    unit text NOT NULL,
    deviation double precision NOT NULL,
    samples integer NOT NULL,
    machine jsonb NOT NULL,
    versions jsonb NOT NULL,
    CONSTRAINT profile_pkey PRIMARY KEY (fingerprint, measured_at, kind, size)
);
COMMENT ON TABLE mmdb.profile IS 'What calibrate() measured: medians of repeated measurements, by kind and size.';
COMMENT ON COLUMN mmdb.profile.fingerprint IS 'BLAKE3-256 of machine and versions, in hex: rows of another one are of another profile.';
COMMENT ON COLUMN mmdb.profile.measured_at IS 'Of the calibration; the same in all its rows.';
COMMENT ON COLUMN mmdb.profile.kind IS 'What was measured: mmdb/plan/profile/measurements.py.';
COMMENT ON COLUMN mmdb.profile.size IS 'Of what was measured, in size_unit: floating-point operations, bytes, workers ...';
COMMENT ON COLUMN mmdb.profile.deviation IS 'Coefficient of variation of a single measurement.';
COMMENT ON COLUMN mmdb.profile.machine IS 'Node, processor, instructions, cores, memory and device.';
COMMENT ON COLUMN mmdb.profile.versions IS 'torch, Python, engine, and the method of measuring.';
