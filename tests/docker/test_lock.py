"""docker/lock.txt: every package that mmdb needs, in the version that the tests run with."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def _versions(text: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)(?:\[.*\])?==([\w.+]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_the_lock_holds_what_is_needed_in_the_versions_that_are_tested() -> None:
    text = (ROOT / "docker" / "lock.txt").read_text()
    locked = _versions(text)
    tested = _versions((ROOT / "constraints.txt").read_text())
    assert {n: v for n, v in locked.items() if tested.get(n, v) != v} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = [Requirement(one) for one in project["dependencies"]]
    seen = set[str]()
    while left:
        need = left.pop()
        name = canonicalize_name(need.name)
        if name in seen or (need.marker is not None and not need.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        if name != "torch":  # which has indexes of its own; what it needs is locked
            assert need.specifier.contains(locked[name], prereleases=True), need
        left += [Requirement(one) for one in distribution(name).requires or ()]
    assert len(seen) > len(project["dependencies"])
    for package in re.split(r"\n(?=\w)", text):
        assert "--hash=sha256:" in package, package
