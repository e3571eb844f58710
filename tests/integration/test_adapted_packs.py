"""Small tensors of a model and of its base: of what is the base's nothing is stored anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import mmdb
from mmdb.store.tensors.tensor_bytes import CHUNK_BYTES
from mmdb.store.verify import verify

DTYPES = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.int64, torch.bool)


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        yield database


def drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    values = torch.from_numpy(random.normal(0, 20, shape))
    return values > 0 if dtype == torch.bool else values.to(dtype)


def base_and_adapted(random: np.random.Generator) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return tensors, mostly small ones, and the same with adapters and a few others."""
    base: dict[str, Tensor] = {}
    for k in range(int(random.integers(3, 60))):
        dtype = DTYPES[int(random.integers(len(DTYPES)))]
        rows = int(random.integers(0, 900 if random.random() < 0.9 else 5000))
        base[f"{k}.weight"] = drawn(random, (rows,), dtype)
    adapted = dict(base)
    for path, tensor in base.items():
        if random.random() < 0.4:
            layer = path.removesuffix("weight")
            adapted[f"{layer}adapter_a"] = drawn(random, (2, 300), torch.float32)
            adapted[f"{layer}adapter_b"] = drawn(random, (len(tensor), 2), torch.float32)
        if random.random() < 0.05:
            adapted[path] = drawn(random, tuple(tensor.shape), tensor.dtype)
    base["999.bias"] = drawn(random, (3,), torch.float32)
    if random.random() < 0.7:
        adapted["999.bias"] = drawn(random, (77,), torch.float32)  # a head of other outputs
    keys = list(adapted)
    at = sorted(range(len(keys)), key=lambda k: int(keys[k].partition(".")[0]))
    return base, {keys[k]: adapted[keys[k]] for k in at}


def check(db: mmdb.Database, reference: str, wanted: dict[str, Tensor]) -> None:
    found = db.model(reference).tensors
    assert list(found) == list(wanted)
    for path, tensor in wanted.items():
        assert found[path].dtype == tensor.dtype
        assert torch.equal(found[path], tensor), path
    for path, tensor in [item for item in wanted.items() if len(item[1]) > 3][::9]:
        assert torch.equal(db.tensor(reference, path, rows=(1, 3)), tensor[1:3]), path


@pytest.mark.parametrize("seed", range(4))
def test_what_a_model_shares_with_its_base_is_stored_once(
    db: mmdb.Database, seed: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(seed)
    base, adapted = base_and_adapted(random)
    db.save("base", base)
    saved = db.save("adapted", adapted, parent="base", approach="update")
    check(db, "base", base)
    check(db, "adapted", adapted)
    is_moved = len(adapted["999.bias"]) != 3  # and with it what is shorter, which lies behind it
    own = sum(
        t.nbytes
        for path, t in adapted.items()
        if t is not base.get(path) or (is_moved and t.itemsize < 4)
    )
    alone = db.save("alone", adapted, approach="snapshot").stored_bytes
    assert saved.stored_bytes < 1.1 * own + 1000, (own, alone)
    db.save("further", {**base, "x.adapter_a": torch.ones(9)}, parent="adapted", approach="update")
    db.drop_model("alone")
    db.drop_model("base")
    db.gc(dry_run=False, grace="0 days")
    check(db, "adapted", adapted)
    check(db, "further", {**base, "x.adapter_a": torch.ones(9)})
    assert all(one.ok for one in verify(db.connection))
    place = f"duckdb:///{tmp_path}/other.duckdb"
    db.push("adapted", to=place)
    with mmdb.connect(place) as other:
        check(other, "adapted", adapted)
        assert all(one.ok for one in verify(other.connection))
    for name in ("adapted", "further"):
        db.drop_model(name)
    db.gc(dry_run=False, grace="0 days")
    assert not db.sql("SELECT 1 AS one FROM mmdb.encoding")


def test_packs_of_several_chunks(db: mmdb.Database) -> None:
    random = np.random.default_rng(0)
    base = {f"{k}.weight": drawn(random, (2000,), torch.float32) for k in range(70)}
    assert sum(t.nbytes for t in base.values()) > 2 * CHUNK_BYTES
    short = {path: base[path] for path in list(base)[:40]}
    grown = {**base, "0.adapter_a": drawn(random, (1900,), torch.float32)}
    grown["69.adapter_b"] = drawn(random, (1900,), torch.float32)
    db.save("base", base)
    for name, tensors, most in (("short", short, 500), ("grown", grown, 16_700)):
        saved = db.save(name, tensors, parent="base", approach="update")
        assert saved.stored_bytes < most
        check(db, name, tensors)
    assert all(one.ok for one in verify(db.connection))
