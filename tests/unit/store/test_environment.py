"""What an environment's fingerprint holds, and how two of them differ."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from mmdb.store.models.environment import (
    EnvironmentDifference,
    agreement,
    difference,
    environment_hash,
    fingerprint,
)


def changed(**values: Any) -> dict[str, Any]:
    """Return this environment with other values; `packages` are added to those here."""
    packages = {**fingerprint()["packages"], **values.pop("packages", {})}
    return {**fingerprint(), **values, "packages": packages}


def test_the_fingerprint_holds_what_bits_depend_on() -> None:
    found = fingerprint()
    assert found["torch"] == str(torch.__version__)
    assert found["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert found["packages"]["numpy"] == np.__version__
    assert found["byte_order"] == sys.byteorder


def test_it_is_taken_once_per_process() -> None:
    assert fingerprint() is fingerprint()


def test_it_is_json_and_equal_in_another_process() -> None:
    text = json.dumps(fingerprint(), sort_keys=True)
    assert json.loads(text) == fingerprint()
    program = (
        "from mmdb.store.models.environment import environment_hash, fingerprint;"
        "print(environment_hash(fingerprint()).hex())"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == environment_hash(fingerprint()).hex()


def test_it_wakes_no_gpu_and_imports_no_package() -> None:
    program = (
        "import sys, torch; before = set(sys.modules);"
        "from mmdb.store.models.environment import fingerprint;"
        "known = set(sys.modules); fingerprint();"
        "print(torch.cuda.is_initialized(), 'pandas' in sys.modules, len(set(sys.modules) - known))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    woken, pandas, imported = done.stdout.split()
    assert (woken, pandas) == ("False", "False")
    assert int(imported) < 10


def test_equal_environments_agree_exactly() -> None:
    assert difference(fingerprint(), changed()) == []
    assert agreement([]) == "exact"


@pytest.mark.parametrize(
    "values", [{"python": "3.99.0"}, {"cpu": "another"}, {"packages": {"pytest": "0.1"}}]
)
def test_what_decides_no_bits_leaves_them_compatible(values: dict[str, Any]) -> None:
    found = difference(fingerprint(), changed(**values))
    assert len(found) == 1
    assert agreement(found) == "compatible"


@pytest.mark.parametrize(
    "values",
    [
        {"torch": "1.0"},
        {"cpu_capability": "NO AVX"},
        {"gpus": ["a GPU"]},
        {"packages": {"numpy": "1.0"}},
    ],
)
def test_what_decides_bits_makes_it_unknown(values: dict[str, Any]) -> None:
    found = difference(fingerprint(), changed(**values))
    assert len(found) == 1
    assert agreement(found) == "unknown"


def test_the_difference_is_a_list_with_what_decides_bits_first() -> None:
    then = changed(torch="1.0", python="3.1.0", packages={"gone": "2.0"})
    assert [str(d) for d in difference(then, fingerprint())] == [
        f"torch: 1.0 then, {torch.__version__} now",
        "package gone: 2.0 then, none now",
        f"python: 3.1.0 then, {sys.version.split()[0]} now",
    ]
    assert EnvironmentDifference("cuda", None, "13.0") in difference(
        fingerprint(), changed(cuda="13.0")
    )


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    backwards = dict(reversed(list(fingerprint().items())))
    assert environment_hash(backwards) == environment_hash(fingerprint())
    assert environment_hash(changed(torch="1.0")) != environment_hash(fingerprint())
