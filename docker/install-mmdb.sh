#!/usr/bin/env bash
# Makes the environment that the server's Python finds mmdb in: torch of the version in constraints.txt, and
# packages whose hashes are in docker/lock.txt.
#
#   install-mmdb.sh PREFIX
#
#   TORCH=cpu|cuda       the build of torch; cpu if left out
#   TORCH_INDEX_URL=...  the package index of torch's CPU builds, which TORCH=cpu needs
#
# PREFIX/packages leads to the packages, whatever the version of Python.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'install-mmdb: %s\n' "$@" >&2; exit 1; }

prefix=${1:?name the folder that the environment goes to}
torch=$(grep '^torch==' constraints.txt)

case ${TORCH:-cpu} in
    cuda) ;; # what the default index has for x86-64
    cpu) [ -n "${TORCH_INDEX_URL:-}" ] || fail \
        "TORCH=cpu needs TORCH_INDEX_URL, the index of torch's CPU builds" \
        "(see the installation page of PyTorch). The default index would bring CUDA." ;;
    *) fail "TORCH is cpu or cuda, not $TORCH." ;;
esac

# Packages with compiled parts are for one Python: it must be the one in the server.
library=$(pg_config --pkglibdir)/plpython3.so
linked=$(ldd "$library" | sed -nE 's/.*libpython(3\.[0-9]+).*/\1/p' | head -n 1)
python=$(command -v "/usr/bin/python$linked") ||
    fail "PL/Python is linked with Python $linked, and there is no /usr/bin/python$linked."
[ -x "$prefix/bin/python" ] || "$python" -m venv "$prefix"
packages=$("$prefix/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

pip() { "$prefix/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

case ${TORCH:-cpu} in
    cuda) pip install --constraint constraints.txt "$torch" ;;
    cpu) pip install --no-deps --index-url "$TORCH_INDEX_URL" "$torch" ;;
esac
pip install --no-deps --require-hashes --requirement docker/lock.txt
pip install --constraint constraints.txt --no-deps --no-build-isolation .
pip check
rm -rf "$packages"/torch/test "$packages"/torch/bin/test_* # programs that test torch, 120 MB
chmod -R go+rX "$packages" # a checkout's files may be closed to the server's user
ln -sfn "$packages" "$prefix/packages"
