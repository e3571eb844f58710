"""The models that the catalog compares differ in as many tensors as they should."""

from __future__ import annotations

import torch

from mmdb.bench.store_catalog import OWN, TENSORS, relatives


def test_relatives_differ_in_some_tensors_and_strangers_in_all() -> None:
    before = torch.get_rng_state()
    first, sister, stranger = (module.state_dict() for module in relatives(1))
    assert len(first) == TENSORS
    assert sum(not torch.equal(first[path], sister[path]) for path in first) == OWN
    assert all(not torch.equal(first[path], stranger[path]) for path in first)
    assert torch.equal(torch.get_rng_state(), before)
