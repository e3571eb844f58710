#!/usr/bin/env bash
# Adds to an image of PostgreSQL what mmdb needs of the system: PL/Python, and the Python that it
# is linked with. Runs as root. Repeating it changes nothing.
set -euo pipefail

fail() { printf 'install-server: %s\n' "$@" >&2; exit 1; }

major=$(pg_config --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
[ "$major" -ge 15 ] || fail "mmdb needs PostgreSQL 15 or newer; this is $major."

# Images come without the lists of packages.
compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || apt-get update -qq

# PL/Python of another patch release would replace the server.
version=$(dpkg-query --show --showformat='${Version}' "postgresql-$major")
plpython=postgresql-plpython3-$major
[ -n "$(apt-cache show --quiet=2 "$plpython=$version")" ] ||
    fail "apt has no $plpython for PostgreSQL $version: its source keeps the newest patch release alone." \
        "Take a newer image of PostgreSQL $major as BASE, or add a source that keeps older ones."

export DEBIAN_FRONTEND=noninteractive
apt-get install -qq --no-install-recommends "$plpython=$version" python3 python3-venv
