#!/usr/bin/env bash
# Makes the passwords that the compose files hand to containers, in docker/secrets; keeps what is there.
#
# A container's user has another number than yours, so the files are open to it; the folder is not
# open to other users of this machine.
set -euo pipefail
cd "$(dirname "$0")"

mkdir -p secrets
chmod 700 secrets
for name in postgres_password worker_password reader_password superset_password superset_key; do
    if [ ! -s "secrets/$name" ]; then
        head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"secrets/$name"
        chmod 644 "secrets/$name"
    fi
done
