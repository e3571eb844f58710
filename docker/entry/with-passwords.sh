#!/usr/bin/env bash
# Runs a command with the passwords of some logins in a password file of libpq's.
#
#   LOGINS="ROLE=FILE ROLE=FILE ..."   each FILE holds the password of a role, on any server
#   PGPASSFILE                         the password file, which is written anew
set -euo pipefail

if [ -n "${LOGINS:-}" ]; then
    umask 077
    : >"$PGPASSFILE"
    for login in $LOGINS; do
        role=${login%%=*} file=${login#*=}
        password=$(sed 's/[\\:]/\\&/g' "$file") # a colon ends a field there
        printf '*:*:*:%s:%s\n' "$role" "$password" >>"$PGPASSFILE"
    done
    umask 022
fi
exec "$@"
