-- name: find_role
-- What the current role may do; the columns are null where the roles of mmdb are not there.
SELECT
    r.rolname AS name,
    r.rolsuper AS is_superuser,
    pg_catalog.pg_has_role(r.oid, n.nspowner, 'USAGE') AS is_owner,
    pg_catalog.pg_has_role(r.oid, a.oid, 'USAGE') AS is_admin,
    pg_catalog.pg_has_role(r.oid, t.oid, 'USAGE') AS is_trainer,
    pg_catalog.pg_has_role(r.oid, v.oid, 'USAGE') AS is_reader
FROM pg_catalog.pg_roles AS r
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'mmdb'
LEFT JOIN pg_catalog.pg_roles AS a ON a.rolname = 'mmdb_admin'
LEFT JOIN pg_catalog.pg_roles AS t ON t.rolname = 'mmdb_trainer'
LEFT JOIN pg_catalog.pg_roles AS v ON v.rolname = 'mmdb_reader'
WHERE r.rolname = current_user;

-- name: find_functions
-- The functions and procedures of mmdb that the database has.
SELECT DISTINCT p.proname AS name
FROM pg_catalog.pg_proc AS p
INNER JOIN pg_catalog.pg_namespace AS n ON p.pronamespace = n.oid
WHERE n.nspname = 'mmdb';

-- name: find_views
-- The views of mmdb that the database has.
SELECT v.viewname AS name
FROM pg_catalog.pg_views AS v
WHERE v.schemaname = 'mmdb';

-- name: probe_python
-- Import the packages in the server's Python and leave what was found in a setting.
DO LANGUAGE plpython3u $$
import importlib, importlib.metadata, json, os, sys, sysconfig

def probe(name):
    try:
        module = importlib.import_module(name)
        if name == "mmdb":
            importlib.import_module("mmdb.server.hop_functions")
    except BaseException as error:
        return {"version": "", "folder": "", "error": type(error).__name__ + ": " + str(error)}
    try:
        version = importlib.metadata.version("mmdb-learn" if name == "mmdb" else name)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return {"version": version, "folder": os.path.dirname(module.__file__ or ""), "error": ""}

found = {
    "python": list(sys.version_info[:2]),
    "site": sysconfig.get_path("purelib"),
    "packages": {name: probe(name) for name in ("mmdb", "torch", "numpy", "pyarrow")},
}
plan = plpy.prepare("SELECT pg_catalog.set_config('mmdb.doctor', $1, true)", ["text"])
plan.execute([json.dumps(found)])
$$;

-- name: read_probe
-- What the probe has found, as JSON.
SELECT current_setting('mmdb.doctor') AS found;

-- name: read_cluster_name
-- The server's name for itself: "15/main" on Debian.
SELECT current_setting('cluster_name') AS name;
