-- Whose a new row is: the role's, or by ALTER ROLE ... SET mmdb.team its team's. With teams, policies hold it true.
ALTER TABLE mmdb.dataset ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.run ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.manifest ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.model ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.share ALTER COLUMN author SET DEFAULT session_user;
