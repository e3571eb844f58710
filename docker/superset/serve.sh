#!/usr/bin/env bash
# Makes Superset's own database or brings it up to date, and becomes its server; it may be repeated.
#
#   SUPERSET_KEY_FILE       signs sessions
#   SUPERSET_PASSWORD_FILE  of the user admin
#   MMDB_URI                where the views are, without a password, which libpq reads in PGPASSFILE
set -euo pipefail

superset db upgrade
superset init
python "$(dirname "$(readlink -f "$0")")/first_user.py"
superset set-database-uri --database_name mmdb --uri "$MMDB_URI"
exec gunicorn --bind "${BIND:-0.0.0.0:8088}" --workers 1 --threads 8 --timeout 120 'superset.app:create_app()'
