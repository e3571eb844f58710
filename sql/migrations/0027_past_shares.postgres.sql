-- What was once another team's to read stays readable in what was made of it: whoever has a model is taken for such a team.

ALTER TABLE mmdb.share DROP CONSTRAINT share_kind_check;
ALTER TABLE mmdb.share ADD CONSTRAINT share_kind_check CHECK (kind IN ('dataset', 'run', 'model', 'past'));
COMMENT ON COLUMN mmdb.share.kind IS 'dataset, run, model; past: the role has had something of another team''s, which what it made may rest on.';
INSERT INTO mmdb.share (kind, object_id, role)
SELECT 'past', 0, coalesce(o.owner, 'public')
FROM (SELECT m.owner FROM mmdb.model AS m UNION SELECT r.owner FROM mmdb.run AS r) AS o
ON CONFLICT DO NOTHING;
