"""Models out of this machine's files: the bits of the database, for those who may read them."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.data import node_cache
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import ModelReader, load_tensors
from mmdb.store.models.save import save_model
from mmdb.store.tensors import mapped, tensor_bytes
from tests.cluster import Cluster
from tests.stores import check, load
from tests.teams import teams_in
from tests.tensors import changed, random_tensor, tensors

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
names = st.text("abc.", min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small models have files, too."""
    monkeypatch.setattr(mapped, "KEPT_FROM", 1)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


def files(folder: Path) -> list[Path]:
    """Return the files of the cache, finished or not."""
    return sorted(folder.iterdir()) if folder.exists() else []


def model(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a model of two large tensors and a small one."""
    shapes = {"a.weight": (60, 70), "b.weight": (90, 40), "b.bias": (40,)}
    return {p: random_tensor(torch.float32, s, seed + k) for k, (p, s) in enumerate(shapes.items())}


@given(given_model=st.dictionaries(names, tensors, min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_saved_comes_back_from_the_file(
    db: Database, cache_folder: Path, given_model: dict[str, torch.Tensor], seed: int
) -> None:
    """Also of differences, ties and views, whatever was done to what was recovered before."""
    source, connection = random.Random(seed), db.connection
    large = random_tensor(source.choice([torch.float32, torch.bfloat16]), (50, 90), seed)
    given_model |= {"large": large, "tied": large, "view": large[3:20].t(), "other": large.clone()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_bytes, "CHUNK_BYTES", 2 << 10)
        parent = save_model(connection, "parent", given_model)
        child = dict(given_model) | {"more": changed(large, 0.01, seed)}
        saved = save_model(connection, "child", child, parent=parent.reference, approach="update")
    for reference, expected in ((parent.reference, given_model), (saved.reference, child)):
        for known in (True, True, False):
            if not known:
                mapped._right.clear()
            check(connection, reference, expected)
            found = load(connection, reference)
            assert found["large"] is found["tied"]
            for tensor in found.values():
                tensor.view(-1).view(torch.uint8).fill_(1) if tensor.is_contiguous() else None
        mapped._right.clear()
        check(connection, reference, expected)
    assert [path for path in files(cache_folder) if path.suffix != ".tensors"] == []


def test_the_file_is_what_is_read(db: Database, cache_folder: Path) -> None:
    saved = save_model(db.connection, "a", model())
    check(db.connection, saved, model())
    (file,) = files(cache_folder)
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.stat()
    db.sql("UPDATE mmdb.tensor_chunk SET data = ''")  # that nobody reads
    check(db.connection, saved, model())
    assert file.stat() == before


@pytest.mark.parametrize("kept", [True, False], ids=["in this process", "in another one"])
@pytest.mark.parametrize("how", ["a bit", "shorter", "longer", "a link", "nothing"])
def test_a_damaged_file_is_made_again(
    db: Database, cache_folder: Path, tmp_path: Path, how: str, kept: bool
) -> None:
    saved = save_model(db.connection, "a", model())
    check(db.connection, saved, model())
    (file,) = files(cache_folder)
    data = bytearray(file.read_bytes())
    if how == "a bit":
        data[random.Random(0).randrange(200)] ^= 4
    elif how == "a link":
        shutil.move(file, tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    if how in ("a bit", "shorter", "longer"):
        file.write_bytes({"shorter": data[:-64], "longer": data + b"x" * 64}.get(how, bytes(data)))
    elif how == "nothing":
        file.unlink()
    if not kept:
        mapped._right.clear()
    check(db.connection, saved, model())
    (again,) = files(cache_folder)
    assert not again.is_symlink()
    mapped._right.clear()
    check(db.connection, saved, model())


def test_what_was_not_compared_when_it_was_written_is_compared_later(
    db: Database, cache_folder: Path
) -> None:
    saved = find_model(db.connection, save_model(db.connection, "a", model()).reference)
    chunk = "(SELECT min(tensor_id) FROM mmdb.tensor_chunk)"
    db.sql(f"UPDATE mmdb.tensor_chunk SET codec = 1, data = 'abcd' WHERE tensor_id = {chunk}")
    load_tensors(db.connection, saved, verify="none")
    with pytest.raises(errors.CorruptTensor):
        load_tensors(db.connection, saved)


def test_a_model_that_is_gone_is_not_read_from_its_file(db: Database, cache_folder: Path) -> None:
    reader = ModelReader(db.connection)
    saved = find_model(db.connection, save_model(db.connection, "a", model()).reference)
    reader.tensors(saved)
    assert len(files(cache_folder)) == 1
    db.drop_model("a@1")
    db.gc(dry_run=False, grace="0 days")
    with pytest.raises(errors.ModelNotFound):
        reader.tensors(saved)  # which knows where the tensors were


def test_each_team_has_a_file_of_its_own(
    cluster: Cluster, template: str, cache_folder: Path
) -> None:
    """How long a call takes says nothing of what another team has."""
    with teams_in(cluster, "mmdb_mapped", template) as teams:
        for user in ("ann", "bob"):
            with teams.connect(user) as session:
                saved = session.save(f"of_{user}", model())
                check(session.connection, saved, model())
        assert len(files(cache_folder)) == 2
        with teams.connect("ann") as ann, teams.connect("bob") as bob:
            ann.share_model("of_ann", "bob")
            reader, shared = ModelReader(bob.connection), find_model(bob.connection, "of_ann")
            reader.tensors(shared)
            assert len(files(cache_folder)) == 2
            ann.share_model("of_ann", "bob", shared=False)
            with pytest.raises(errors.MmdbError):
                reader.tensors(shared)  # which knows where the tensors are


def test_a_folder_that_others_may_write_to_is_not_read(db: Database, cache_folder: Path) -> None:
    saved = save_model(db.connection, "a", model())
    cache_folder.mkdir(mode=0o700, exist_ok=True)
    for mode, count in ((0o770, 0), (0o702, 0), (0o755, 1)):
        cache_folder.chmod(mode)
        check(db.connection, saved, model())
        assert len(files(cache_folder)) == count, oct(mode)


def test_the_cache_is_bounded(
    db: Database, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = [save_model(db.connection, "a", model(10 * k)) for k in range(7)]
    monkeypatch.setenv("MMDB_CACHE_BYTES", str(4 * 32_000))
    for number, one in enumerate(saved):
        check(db.connection, one, model(10 * number))
        if files(cache_folder):
            newest = max(files(cache_folder), key=lambda path: path.stat().st_mtime_ns)
            os.utime(newest, ns=(number, number))
    assert sum(path.stat().st_size for path in files(cache_folder)) <= 4 * 32_000
    assert len(files(cache_folder)) == 4
    monkeypatch.setenv("MMDB_CACHE_BYTES", "0")
    node_cache.clear()
    check(db.connection, saved[0], model())
    assert not files(cache_folder)


def test_a_full_disk_costs_the_file_alone(
    db: Database, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save_model(db.connection, "a", model())

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    for call in ("posix_fallocate", "pwrite"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            check(db.connection, saved, model())
        assert not files(cache_folder)


def test_damage_in_the_database_leaves_no_file(db: Database, cache_folder: Path) -> None:
    saved = save_model(db.connection, "a", model())
    db.sql("DELETE FROM mmdb.tensor_chunk WHERE ordinal = 0")
    with pytest.raises(errors.CorruptTensor):
        load(db.connection, saved)
    assert not files(cache_folder)


def test_a_recovered_module_is_trained_and_saved_like_any_other(
    db: Database, cache_folder: Path, tmp_path: Path
) -> None:
    db.save("net", nn.Sequential(nn.Linear(50, 60), nn.ReLU(), nn.Linear(60, 4)))
    first, second = db.recover("net"), db.recover("net")
    assert len(files(cache_folder)) == 1
    for module in (first, second):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        module(torch.ones(3, 50)).sum().backward()
        optimizer.step()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    path = next(path for path, _ in first.named_parameters() if path.endswith("weight"))
    third = db.recover("net").get_parameter(path)
    assert not torch.equal(third, first.get_parameter(path))
    torch.save(third, tmp_path / "one")  # without its neighbours in the file
    assert (tmp_path / "one").stat().st_size < third.nbytes + 2000
    again = db.recover(db.save("net", second, parent="net@1").reference)
    assert torch.equal(again.get_parameter(path), second.get_parameter(path))


def _recover(url: str, folder: str, start: object, seeds: list[int]) -> None:
    os.environ["MMDB_CACHE_DIR"] = folder
    mapped.KEPT_FROM = 1
    with mmdb.connect(url) as db:
        start.wait()  # type: ignore[attr-defined]
        for _ in range(20):
            for k, seed in enumerate(seeds):
                check(db.connection, f"a@{k + 1}", model(seed))
            node_cache.clear()


def test_processes_write_and_remove_the_same_files(postgres_url: str, cache_folder: Path) -> None:
    seeds = [0, 10, 20]
    with mmdb.connect(postgres_url) as db:
        for seed in seeds:
            save_model(db.connection, "a", model(seed))
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(2)
    running = [
        spawn.Process(target=_recover, args=(postgres_url, str(cache_folder), start, seeds))
        for _ in range(2)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
    assert [process.exitcode for process in running] == [0, 0]
