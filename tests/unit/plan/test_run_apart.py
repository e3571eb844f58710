"""Models that are followed in another process."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from mmdb.plan.candidate_work import trace_in_subprocess, traced_work


def about(factory: str, target: str, **arguments: Any) -> str:
    """Return what decides a module of nine inputs and three outputs."""
    architecture = {"factory": factory, "arguments": arguments}
    return json.dumps([architecture, {}, [9], "float32", 3, {factory: target}])


def test_what_another_process_says_is_what_this_one_finds() -> None:
    own = about("mlp", "mmdb.graph.factories:mlp", hidden=[8], batch_norm=True)
    exits = about("fails", "tests.broken:fails", when="exit")
    unknown = about("nothing", "tests.broken:nothing")
    found = trace_in_subprocess([own, exits, unknown], lambda speak: speak())
    there, here = found[own], traced_work(own)
    assert not isinstance(there, str) and not isinstance(here, str)
    assert there[1] == here[1]
    np.testing.assert_equal(asdict(there[0]), asdict(here[0]))
    assert {type(value) for value in asdict(there[0]).values()} <= {
        type(value) for value in asdict(here[0]).values()
    } | {dict}
    assert "enough" in str(found[exits]) and isinstance(found[unknown], str)
    again = trace_in_subprocess([own], lambda speak: None)  # it is remembered
    assert again[own] is there
