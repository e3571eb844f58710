#!/usr/bin/env bash
# Whether the server answers a query; exit code 0 or not.
set -euo pipefail

pg_isready --quiet --host="$SOCKETS" --timeout=3
answer=$(psql --no-psqlrc --quiet --tuples-only --no-align --host="$SOCKETS" --username=postgres \
    --dbname=postgres --command='SELECT 1')
[ "$answer" = 1 ]
