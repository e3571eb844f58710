-- Chunk tables are vacuumed before a fifth of them is dead, and those of states as fast as the disk can.

ALTER TABLE mmdb.block SET (
    autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.05
);
ALTER TABLE mmdb.tensor_chunk_0 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_1 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_2 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_3 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_4 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_5 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_6 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_7 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.checkpoint_chunk SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 64,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 4096,
    toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE mmdb.state_chunk SET (
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_threshold = 4096,
    toast.autovacuum_vacuum_cost_delay = 0
);
