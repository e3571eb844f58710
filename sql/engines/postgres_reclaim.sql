-- Make the space of deleted rows free for others, and return what lies at the end of a table to the system.
VACUUM mmdb.tensor_chunk, mmdb.tensor, mmdb.encoding, mmdb.manifest, mmdb.manifest_tensor, mmdb.model,
mmdb.model_change, mmdb.recipe_tensor, mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge,
mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.feature_part, mmdb.feature_block;
