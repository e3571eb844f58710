#!/usr/bin/env bash
# Brings mmdb into a database of a running server: the database, mmdb or a newer mmdb, the logins.
# Runs as the superuser and may be repeated.
#
#   PGHOST, PGPORT, PGDATABASE  the server, on Citus the coordinator, and the database
#   NODES                       on Citus: "HOST:PORT HOST:PORT ...", its other servers
#   WORKER_PASSWORD_FILE        of worker, which training logs in as
#   READER_PASSWORD_FILE        of dashboard, which may only look; without it there is none
#   SOCKETS                     where the server has its socket
set -euo pipefail

entry=$(dirname "$(readlink -f "$0")")
export PGUSER=postgres

python3 "$entry/databases.py"
mmdb install "postgresql://$PGUSER@$PGHOST:$PGPORT/$PGDATABASE"
python3 "$entry/logins.py"
