"""The garbage collector rests while a session imports, and only then."""

from __future__ import annotations

import gc

import pytest

from mmdb.train.values.runtime import uncollected


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_is_as_it_was_afterwards(before: bool) -> None:
    was = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == before
        with pytest.raises(KeyError), uncollected():
            raise KeyError
        assert gc.isenabled() == before
    finally:
        (gc.enable if was else gc.disable)()
