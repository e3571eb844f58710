-- How features lie on disk, and how they are found.
ALTER TABLE mmdb.feature_block ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE mmdb.feature_block SET (
    autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.05
);
CREATE INDEX feature_dataset_idx ON mmdb.feature (dataset_id);
CREATE INDEX feature_model_idx ON mmdb.feature (model_id);
CREATE INDEX feature_part_part_idx ON mmdb.feature_part (part_id);
CREATE INDEX run_feature_feature_idx ON mmdb.run_feature (feature_id);
CREATE INDEX candidate_feature_feature_idx ON mmdb.candidate_feature (feature_id);
CREATE INDEX candidate_feature_run_idx ON mmdb.candidate_feature (run_id);
