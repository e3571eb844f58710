"""Pins what an image installs, with hashes; looks for known holes in it, and lists it as an SBOM.

    python -m scripts.locked_packages lock    writes docker/lock.txt
    python -m scripts.locked_packages audit   asks the advisories that pip-audit knows
    python -m scripts.locked_packages sbom    writes build/sbom.json, CycloneDX

torch is left out: its builds, for CPUs and for CUDA, are of several indexes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "docker" / "lock.txt"
#: An environment of its own: what looks at packages is none of them.
TOOLS = ROOT / ".venv-audit"
PINNED = ("cyclonedx-bom==7.5.0", "pip-audit==2.10.1", "uv==0.13.9")
#: Packages of one system, and of torch's own, which come with its build.
_LOCK = (
    *("--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu"),
    *("--constraint", "constraints.txt", "--generate-hashes", "--no-annotate", "--no-header"),
    *("--no-emit-package", "torch", "--quiet", "--output-file", str(LOCK)),
)
_SBOM = ("--pyproject", "pyproject.toml", "--of", "JSON", "--output-file", "build/sbom.json")


def main(arguments: list[str]) -> int:
    """Do what the one argument says."""
    commands = {
        "lock": ["uv", "pip", "compile", "pyproject.toml", "docker/build.in", *_LOCK],
        "audit": ["pip-audit", "--disable-pip", "--require-hashes", "--requirement", str(LOCK)],
        "sbom": ["cyclonedx-py", "requirements", str(LOCK), *_SBOM],
    }
    if len(arguments) != 1 or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    if not (TOOLS / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(TOOLS)], check=True)
    pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "install", "--quiet", *PINNED]
    subprocess.run(pip, check=True)
    (ROOT / "build").mkdir(exist_ok=True)
    program, *options = commands[arguments[0]]
    given = [str(TOOLS / "bin" / program), *options]
    return subprocess.run(given, cwd=ROOT, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
