-- The validated epochs of candidates, without their other hops: who has a warm start is compared by them.

CREATE INDEX hop_objective_idx ON mmdb.hop (candidate_id, epoch, objective) WHERE objective IS NOT NULL;
