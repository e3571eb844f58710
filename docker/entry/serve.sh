#!/usr/bin/env bash
# Makes PostgreSQL's cluster on the first start and becomes the server; arguments are the server's.
#
#   PGDATA                  where the cluster lies or is made; the folder above is the volume
#   POSTGRES_PASSWORD_FILE  holds the password of the superuser, postgres; for the first start
#   SOCKETS                 the folder of the server's socket
set -euo pipefail

entry=$(dirname "$(readlink -f "$0")")

make_cluster() {
    local unfinished=$PGDATA.unfinished
    rm -rf "$unfinished"
    initdb --pgdata="$unfinished" --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" \
        --auth-local=peer --auth-host=scram-sha-256 --data-checksums \
        --encoding=UTF8 --locale=C.UTF-8 --no-instructions
    cp "$entry/pg_hba.conf" "$unfinished/pg_hba.conf"
    # Over the socket the server's own user is the superuser, or the login of the workers that
    # CALL mmdb.train opens: neither needs a password there.
    printf 'server %s %s\n' "$(id -un)" postgres "$(id -un)" worker >"$unfinished/pg_ident.conf"
    mv "$unfinished" "$PGDATA" # whole, or not there
}

[ -s "$PGDATA/PG_VERSION" ] || make_cluster
mkdir -p "$TMPDIR" # the node's cache of partitions
server=$(command -v postgres)
# Without the environment's own Python on the path, which would mislead the one in the server.
export PATH=${server%/*}:/usr/bin:/bin
exec "$server" -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories="$SOCKETS" "$@"
