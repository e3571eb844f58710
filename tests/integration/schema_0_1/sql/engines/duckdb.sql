-- What DuckDB needs beside the translated schema.

-- The owner process looks hops up by candidate; PostgreSQL has its own indexes.
CREATE INDEX hop_candidate_idx ON mmdb.hop (candidate_id);
