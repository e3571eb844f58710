"""The software and hardware of this process, and how they differ from another's.

The fingerprint is taken once per process and costs milliseconds: nothing is run, no package is
imported for it, and no GPU is woken up.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import blake3
import torch

from mmdb.db.connection import Connection
from mmdb.db.queries import load

_Q = load("recipes")

#: exact: nothing differs. compatible: nothing that the bits of a training depend on differs, as
#: far as is known. unknown: such a thing differs, and only a replay can tell.
Level = Literal["exact", "compatible", "unknown"]

#: What decides how numbers are computed and rounded, and how random ones are drawn.
_BITS = {
    "torch",
    "cpu_capability",
    "cpu_vendor",
    "machine",
    "byte_order",
    "cuda",
    "cudnn",
    "gpus",
    "gpu_driver",
    "package numpy",
}
_DISTRIBUTION = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-.*)?\.(?:dist|egg)-info")


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """One thing that is not the same in two environments; None: it is not there."""

    what: str
    then: str | None
    now: str | None

    def __str__(self) -> str:
        return f"{self.what}: {self.then or 'none'} then, {self.now or 'none'} now"


@cache
def fingerprint() -> Mapping[str, Any]:
    """Return what describes this process's environment, in JSON values; one object for ever."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "libc": "-".join(platform.libc_ver()),
        "machine": platform.machine(),
        "byte_order": sys.byteorder,
        "cpu": _processor("model name"),
        "cpu_vendor": _processor("vendor_id"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "cudnn": str(torch.backends.cudnn.version() or "") if torch.version.cuda else "",
        "gpus": _gpus(),
        "gpu_driver": _gpu_driver(),
        "packages": dict(sorted(_packages())),
    }


def environment_hash(details: Mapping[str, Any]) -> bytes:
    """Return the name of an environment, 32 bytes."""
    return blake3.blake3(_text(details).encode()).digest()


def put_environment(connection: Connection) -> int:
    """Return the number of this process's environment, which is added where it is new."""
    details = fingerprint()
    name = environment_hash(details)
    found = connection.rows(_Q.find_environment_id, environment_hash=name)
    if not found:
        connection.run(_Q.add_environment, environment_hash=name, details=_text(details))
        found = connection.rows(_Q.find_environment_id, environment_hash=name)
    return int(found[0]["environment_id"])


def find_environment(connection: Connection, environment_id: int) -> dict[str, Any]:
    """Return the details of a stored environment."""
    (row,) = connection.rows(_Q.find_environment, environment_id=environment_id)
    found: dict[str, Any] = json.loads(row["details"])
    return found


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[EnvironmentDifference]:
    """Return what differs between two environments, by name; what decides the bits comes first."""
    before, after = dict(_flat(then)), dict(_flat(now))
    names = sorted({*before, *after}, key=lambda name: (name not in _BITS, name))
    pairs = ((name, before.get(name), after.get(name)) for name in names)
    return [EnvironmentDifference(what, old, new) for what, old, new in pairs if old != new]


def agreement(differences: list[EnvironmentDifference]) -> Level:
    """Return how far two environments agree, given what differs."""
    if not differences:
        return "exact"
    return "unknown" if any(d.what in _BITS for d in differences) else "compatible"


def _flat(details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in details.items():
        if name == "packages":
            yield from ((f"package {package}", version) for package, version in value.items())
        elif value not in ("", []):
            yield name, ", ".join(value) if isinstance(value, list) else str(value)


def _text(details: Mapping[str, Any]) -> str:
    return json.dumps(details, sort_keys=True, separators=(",", ":"))


def _processor(field: str) -> str:
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return platform.processor() if field == "model name" else ""


def _gpus() -> list[str]:
    """Return the models of the GPUs, as the driver's files say: asking CUDA would wake it up."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found += [line.partition(":")[2].strip() for line in _lines(path) if "Model:" in line]
    return found


def _gpu_driver() -> str:
    lines = _lines(Path("/proc/driver/nvidia/version"))
    found = re.search(r"\d+\.\d+(?:\.\d+)?", lines[0]) if lines else None
    return found[0] if found else ""


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(errors="replace").splitlines()
    return []


def _packages() -> Iterator[tuple[str, str]]:
    """Yield name and version of each installed package, by the names of its folders.

    The first on sys.path is the one that is imported. Reading the metadata files instead takes a
    hundred times as long.
    """
    seen = set()
    for entry in sys.path:
        with suppress(OSError):
            for path in sorted(Path(entry or ".").glob("*.*-info")):
                match = _DISTRIBUTION.fullmatch(path.name)
                name = re.sub(r"[-_.]+", "-", match["name"]).lower() if match else ""
                if match and name not in seen:
                    seen.add(name)
                    yield name, match["version"]
