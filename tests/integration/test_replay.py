"""Models that are kept as recipes come back bit for bit, or there is an error that says why not."""

from __future__ import annotations

import copy
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.data.dataset import dataset_of, find_dataset
from mmdb.db.connection import Row
from mmdb.store import states
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recipe import Recipe
from mmdb.store.models.save import Saved, save_model
from mmdb.store.tensors.tensor_bytes import hash_of
from mmdb.train.compute.exact import rng_state
from mmdb.train.compute.live import weights
from mmdb.train.replay.recipe_replay import load_weights, recover_module
from mmdb.train.replay.saving import save_candidate, save_with_recipe
from mmdb.train.replay.trainer import TrainingData
from tests import trainers
from tests.cluster import Cluster

ROWS, WIDTH, CLASSES = 700, 10, 3
SEARCH = {
    "space": {
        "optimizer": ["adam"],
        "lr": [0.02],
        "schedule": [{"name": "step", "step_size": 1, "gamma": 0.5}],
        "batch_size": 48,
    },
}
ARCHITECTURE = "mlp(hidden=[16, 8], dropout=0.2, batch_norm=True)"
HASHES = dict[str, bytes]


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a database with a trained run `r` of one candidate, and trainers; see `undone`."""
    folder = tmp_path_factory.mktemp("replay")
    url = f"duckdb:///{folder}/zoo.duckdb"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_replay", request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        yield database
    if request.param == "postgres":
        cluster.drop_database("mmdb_replay")


def fill(db: Database) -> None:
    source = np.random.default_rng(5)
    x = source.normal(size=(ROWS, WIDTH)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0).astype(int)
    db.sql(f"CREATE TABLE points ({', '.join(f'c{k} real' for k in range(WIDTH))}, y integer)")
    rows = (f"({', '.join(repr(float(v)) for v in x[k])}, {y[k]})" for k in range(ROWS))
    db.sql(f"INSERT INTO points VALUES {', '.join(rows)}")
    db.create_dataset("d", "SELECT * FROM points", partitions=3, seed=3)
    db.create_dataset("other", "SELECT * FROM points", partitions=2)
    for name in ("fine_tune", "every_generator", "noise", "fails"):
        db.sql(f"SELECT mmdb.register_trainer('{name}', 'tests.trainers:{name}')")
    run = db.create_run(
        "r", dataset="d", architecture=ARCHITECTURE, search=SEARCH, epochs=3, seed=7
    )
    run.train(workers=1)


class Undo(Exception):
    """Ends a transaction whose changes are not to last."""


@pytest.fixture
def lasting() -> None:
    """Let what a test does last: DuckDB rolls back nothing before the test's own transaction."""


@pytest.fixture(autouse=True)
def undone(db: Database, request: pytest.FixtureRequest) -> Iterator[None]:
    """Roll back what a test did."""
    if "lasting" in request.fixturenames:
        yield
        return
    try:
        with db.connection.transaction():
            yield
            raise Undo
    except Undo:
        pass


def candidate_id(db: Database) -> int:
    return int(db.sql("SELECT candidate_id FROM mmdb.candidate")[0]["candidate_id"])


def prune(db: Database) -> None:
    """Delete every checkpoint."""
    states.prune_checkpoints(db.connection, candidate_id(db), set())


def best_weights(db: Database) -> HASHES:
    """Return the hashes of the tensors in the best epoch's checkpoint."""
    best = db.sql("SELECT best_epoch FROM mmdb.leaderboard")[0]["best_epoch"]
    (row,) = [c for c in states.checkpoints(db.connection, candidate_id(db)) if c["epoch"] == best]
    state = states.read_checkpoint(
        db.connection, row["part_id"], candidate_id(db), bytes(row["state_hash"]).hex()
    )
    assert state is not None
    return hashes(weights(state))


def hashes(tensors: Mapping[str, torch.Tensor]) -> HASHES:
    return {path: hash_of(tensor) for path, tensor in tensors.items()}


def recovered(db: Database, model: str, **arguments: Any) -> HASHES:
    connection = db.connection
    return hashes(load_weights(connection, find_model(connection, model), **arguments))


def model_row(db: Database, name: str) -> Row:
    return db.sql(
        "SELECT m.model_id, m.approach, m.manifest_id, m.stored_bytes, m.reason, r.replayed_s, "
        "r.tensor_hashes, CAST(r.arguments AS text) AS arguments FROM mmdb.model AS m "
        "LEFT JOIN mmdb.recipe AS r ON m.model_id = r.model_id "
        f"WHERE m.name = '{name}' ORDER BY m.version DESC LIMIT 1"
    )[0]


def count(db: Database, table: str) -> int:
    return int(db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"])


# -- a run's model ------------------------------------------------------------


def test_a_run_s_model_comes_back_bit_for_bit_though_its_checkpoints_are_gone(
    db: Database,
) -> None:
    expected, tensors = best_weights(db), count(db, "tensor")
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    row = model_row(db, "m")
    assert (row["approach"], row["manifest_id"]) == ("provenance", None)
    assert len(str(row["reason"])) + len(row["arguments"]) + len(row["tensor_hashes"]) < 3_000
    assert count(db, "tensor") == tensors
    assert recovered(db, "m") == expected  # from the checkpoint
    prune(db)
    assert recovered(db, "m") == expected  # from the seed


def test_tensors_of_a_recipe_are_not_said_to_be_missing(db: Database) -> None:
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    save_candidate(db.connection, candidate_id(db), "whole", approach="snapshot")
    assert db.diff("m", "whole") == db.diff("whole", "m") == []
    asked: list[Callable[[], object]] = [
        lambda: db.tensor("m", "1.weight"),
        lambda: db.tensor("m", "1.weight", rows=(0, 1)),
        lambda: db.tensors([("whole", "1.weight"), ("m", "1.weight")]),
        lambda: len(db.model("m").tensors),
        lambda: db.model("m").tensors["1.weight"],
    ]
    for ask in asked:
        with pytest.raises(errors.NotReplayable, match=r"m@. is kept as a recipe: no") as caught:
            ask()
        assert "recover" in str(caught.value.hint)


def test_by_default_a_run_s_model_is_kept_by_its_weights_and_the_reason_says_why(
    db: Database,
) -> None:
    save_candidate(db.connection, candidate_id(db), "m")
    row = model_row(db, "m")
    assert row["approach"] == "snapshot"
    assert "no weights were given" in str(row["reason"])
    prune(db)
    assert recovered(db, "m") == recovered(db, "r")


def test_weights_that_ask_for_few_bytes_make_it_a_recipe(db: Database) -> None:
    options = {"weights": {"storage": 1e9, "recover": 0.0}}
    save_candidate(db.connection, candidate_id(db), "m", options=options)
    assert model_row(db, "m")["approach"] == "provenance"


def test_the_same_epoch_is_saved_once_under_a_name(db: Database) -> None:
    first = save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    again = save_candidate(db.connection, candidate_id(db), "m")
    assert dict(first) == dict(again)


def test_a_replay_neither_depends_on_the_process_s_settings_nor_changes_them(
    db: Database,
) -> None:
    expected = best_weights(db)
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    prune(db)
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    try:
        seed_everything(1)
        expected_draws = draws()
        seed_everything(1)
        with torch.inference_mode():
            assert recovered(db, "m") == expected
        assert draws() == expected_draws
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("place", [0, 1, -1])
def test_the_first_hop_that_differs_is_named(db: Database, place: int) -> None:
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    prune(db)
    hops = db.sql(
        "SELECT h.ordinal, h.epoch, p.ordinal AS partition, h.worker, h.environment "
        "FROM mmdb.hop AS h JOIN mmdb.partition AS p ON h.part_id = p.part_id "
        "WHERE p.role = 'train' AND h.epoch <= (SELECT l.best_epoch FROM mmdb.leaderboard AS l) "
        "ORDER BY h.ordinal"
    )
    hop = hops[place]  # of those that the model is made of
    ordinal = hop["ordinal"]
    db.sql(f"UPDATE mmdb.hop SET state_out = state_in WHERE ordinal = {ordinal}")
    with pytest.raises(errors.ReplayMismatch) as caught:
        recovered(db, "m")
    message = caught.value.message
    assert f"hop {ordinal} of candidate" in message
    assert f"(epoch {hop['epoch']}, partition {hop['partition']})" in message
    assert repr(hop["worker"]) in message
    assert message.count(hop["environment"]) == 2  # then and now


def test_a_block_whose_rows_changed_is_named_with_its_hop(db: Database) -> None:
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    prune(db)
    (hop,) = db.sql("SELECT part_id FROM mmdb.hop WHERE ordinal = 1")
    db.sql(f"UPDATE mmdb.block SET data = digest WHERE part_id = {hop['part_id']}")
    with pytest.raises(errors.BlockCorrupt, match=r"Model m@1, hop 1 of candidate"):
        recovered(db, "m")


def test_the_first_tensors_that_differ_are_named(db: Database) -> None:
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    paths, found = list(recovered(db, "m")), bytearray(model_row(db, "m")["tensor_hashes"])
    for place in (1, 4):
        found[8 * place] ^= 1
    db.sql(
        "UPDATE mmdb.recipe SET tensor_hashes = %(h)s"
        if db.connection.engine == "postgres"
        else "UPDATE mmdb.recipe SET tensor_hashes = $h",
        {"h": bytes(found)},
    )
    with pytest.raises(errors.RecipeMismatch) as caught:
        recovered(db, "m")
    assert f"2 of its {len(paths)} tensors differ" in caught.value.message
    assert f"first {paths[1]}, {paths[4]}." in caught.value.message


def test_hops_of_another_environment_are_a_warning_and_are_compared(db: Database) -> None:
    expected = best_weights(db)
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    db.sql("UPDATE mmdb.hop SET environment = 'torch 1.0' WHERE ordinal = 0")
    assert recovered(db, "m") == expected  # nothing to replay, nothing to warn of
    prune(db)
    with pytest.warns(errors.EnvironmentDiffers, match=r"Model m@1 .* torch 1\.0; here is torch"):
        assert recovered(db, "m") == expected


def test_hops_of_a_device_that_is_not_here_are_done_on_the_cpu_and_a_mismatch_names_both(
    db: Database,
) -> None:
    expected = best_weights(db)
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    prune(db)
    there = "torch 2.13.0+cu130, AVX512, 1 thread(s), CUDA 13.0, NVIDIA H100 sm_90"
    db.sql(f"UPDATE mmdb.hop SET device = 'none:3', environment = '{there}'")
    with pytest.warns(errors.EnvironmentDiffers, match="NVIDIA H100 sm_90; here is torch"):
        assert recovered(db, "m") == expected
    db.sql("UPDATE mmdb.hop SET state_out = state_in WHERE ordinal = 1")
    with pytest.warns(errors.EnvironmentDiffers), pytest.raises(errors.ReplayMismatch) as caught:
        recovered(db, "m")
    assert f"did it on none:3, {there}; here it was done on cpu, torch" in caught.value.message
    assert "another device" in caught.value.hint


def test_a_hop_that_is_not_recorded_any_more_ends_the_recipe(db: Database) -> None:
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    prune(db)
    db.sql("DELETE FROM mmdb.hop WHERE ordinal = 1")
    with pytest.raises(errors.NotReplayable, match="hops are recorded"):
        recovered(db, "m")


def test_a_damaged_checkpoint_is_an_error(db: Database) -> None:
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    db.sql("UPDATE mmdb.checkpoint_chunk SET data = state_hash")
    with pytest.raises(errors.StateCorrupt):
        recovered(db, "m")
    with pytest.raises(errors.StateCorrupt):
        save_candidate(db.connection, candidate_id(db), "other")


# -- the dataset --------------------------------------------------------------


def test_a_dataset_that_a_recipe_needs_is_not_dropped_but_by_force(db: Database) -> None:
    expected = best_weights(db)
    save_candidate(db.connection, candidate_id(db), "m", approach="provenance")
    with pytest.raises(errors.DatasetInUse, match="needed to make model m@1 again") as caught:
        db.drop_dataset("d")
    assert "force => true" in caught.value.hint
    db.drop_dataset("d", force=True)
    assert recovered(db, "m") == expected  # a checkpoint is there
    prune(db)
    with pytest.raises(errors.NotReplayable, match="Dataset 'd' has been dropped") as caught_too:
        recovered(db, "m")
    assert "Model m@1" in caught_too.value.message


# -- models that trainers made ------------------------------------------------


def module_of(db: Database, model: str) -> nn.Module:
    return recover_module(db.connection, find_model(db.connection, model))


def data_of(db: Database) -> TrainingData:
    return TrainingData(db.connection, find_dataset(db.connection, "d"))


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def draws() -> list[float]:
    return [random.random(), float(np.random.random()), torch.rand(()).item()]


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def trained(db: Database, parent: str = "r", seed: int = 11, **arguments: Any) -> nn.Module:
    """Fine-tune as a user would, outside of the database."""
    module = module_of(db, parent).train()
    with one_thread():
        seed_everything(seed)
        trainers.fine_tune(module, data_of(db), seed=seed, state={}, **arguments)
    return module


def save(db: Database, name: str, module: nn.Module, recipe: Recipe, **arguments: Any) -> Saved:
    given = {"parent": "r", "approach": "provenance"} | arguments
    return save_with_recipe(db.connection, name, module, recipe, **given)


FINE_TUNED = Recipe(trainer="fine_tune", dataset="d", arguments={"lr": 1e-3, "epochs": 2}, seed=11)


def test_a_model_trained_elsewhere_comes_back_bit_for_bit(db: Database) -> None:
    module = trained(db, lr=1e-3, epochs=2)
    saved = save(db, "tuned", module, FINE_TUNED)
    row = model_row(db, "tuned")
    assert saved.approach == row["approach"] == "provenance"
    assert row["replayed_s"] > 0
    assert recovered(db, "tuned") == hashes(module.state_dict())
    assert recovered(db, "tuned") != recovered(db, "r")


def test_states_of_optimizer_schedule_and_generators_are_part_of_the_recipe(db: Database) -> None:
    module = module_of(db, "r").train()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with one_thread():
        seed_everything(99)
        for x, y in data_of(db).batches(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        schedule.step()
        parent = save_model(db.connection, "half", module, parent="r").reference
        state = {
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "rng": rng_state(),
        }
        recipe = Recipe(trainer="fine_tune", dataset="d", seed=1, state=copy.deepcopy(state))
        trainers.fine_tune(module, data_of(db), seed=1, state=copy.deepcopy(state))
    tensors = count(db, "tensor")
    save(db, "tuned", module, recipe, parent=parent)
    assert recovered(db, "tuned") == hashes(module.state_dict())
    assert count(db, "tensor") - tensors == count(db, "recipe_tensor") == 4  # one for each dtype
    arguments = str(model_row(db, "tuned")["arguments"])
    assert "exp_avg" in arguments
    assert len(arguments) < 10_000


class Odd(nn.Module):
    """A module with tied weights, a view of another tensor's memory and a transient buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight
        memory = torch.arange(12.0)
        self.register_buffer("all", memory)
        self.register_buffer("part", memory[2:6])
        self.register_buffer("passing", torch.ones(2), persistent=False)


def test_a_module_that_the_database_cannot_build_is_recovered_into_the_caller_s(
    db: Database,
) -> None:
    module = Odd()
    save_model(db.connection, "odd", module)
    seed_everything(3)
    trainers.every_generator(module, data_of(db))
    recipe = Recipe(trainer="every_generator", seed=3)
    assert save(db, "moved", module, recipe, parent="odd").approach == "provenance"
    assert model_row(db, "moved")["replayed_s"] > 0
    with pytest.raises(errors.DefinitionMissing, match="the module of model odd@1"):
        recovered(db, "moved")
    expected = hashes(module.state_dict() | {"passing": module.passing})
    assert recovered(db, "moved", into=Odd()) == expected


def test_what_the_parent_does_not_train_stays_frozen_in_a_replay(db: Database) -> None:
    module = module_of(db, "r")
    frozen, parameter = next(iter(module.named_parameters()))
    parameter.requires_grad_(False)
    save_model(db.connection, "frozen", module, parent="r")
    module = trained(db, "frozen")
    recipe = Recipe(trainer="fine_tune", dataset="d", seed=11)
    save(db, "tuned", module, recipe, parent="frozen")
    found = recovered(db, "tuned")
    assert found == hashes(module.state_dict())
    assert found[frozen] == recovered(db, "r")[frozen]


def test_every_generator_starts_from_the_recipe_s_seed(db: Database) -> None:
    module = module_of(db, "r").train()
    seed_everything(21)
    trainers.every_generator(module, data_of(db))
    save(db, "moved", module, Recipe(trainer="every_generator", seed=21))
    assert recovered(db, "moved") == hashes(module.state_dict())


def test_a_recipe_may_start_from_another_recipe(db: Database) -> None:
    save(db, "first", trained(db), Recipe(trainer="fine_tune", dataset="d", seed=11))
    module = trained(db, "first", seed=12)
    second = Recipe(trainer="fine_tune", dataset="d", seed=12)
    save(db, "second", module, second, parent="first")
    assert recovered(db, "second") == hashes(module.state_dict())
    with pytest.raises(errors.DatasetInUse, match="model first@1 and 1 more again"):
        db.drop_dataset("d")
    db.sql("UPDATE mmdb.model SET dropped_at = now() WHERE name = 'first'")
    assert recovered(db, "second") == hashes(module.state_dict())
    with pytest.raises(errors.DatasetInUse, match="first@1"):
        db.drop_dataset("d")
    db.drop_dataset("d", force=True)
    with pytest.raises(errors.NotReplayable, match="'d', which trainer 'fine_tune' reads"):
        recovered(db, "second")


def test_a_trainer_that_is_not_deterministic_is_refused_and_nothing_is_stored(
    db: Database, lasting: None
) -> None:
    module = module_of(db, "r")
    trainers.noise(module, data_of(db))
    before = [count(db, table) for table in ("model", "recipe", "tensor")]
    with pytest.raises(errors.RecipeMismatch, match="Trainer 'noise' gave other weights"):
        save(db, "noisy", module, Recipe(trainer="noise"))
    assert [count(db, table) for table in ("model", "recipe", "tensor")] == before


def test_where_a_recipe_fails_auto_keeps_the_weights_and_says_why(
    db: Database, lasting: None
) -> None:
    module = module_of(db, "r")
    trainers.noise(module, data_of(db))
    recipe, options = Recipe(trainer="noise", train_s=0.001), {"weights": {"storage": 1e9}}
    saved = save(db, "noisy", module, recipe, approach="auto", options=options)
    assert saved.approach == "update"
    assert "gave other weights" in str(model_row(db, "noisy")["reason"])
    assert recovered(db, "noisy") == hashes(module.state_dict())
    assert count(db, "recipe") == 0


def test_a_trainer_that_raises_is_named(db: Database) -> None:
    with pytest.raises(errors.TrainerFailed, match="Trainer 'fails' raised KeyError: 'no luck'"):
        save(db, "failed", module_of(db, "r"), Recipe(trainer="fails"))


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        (Recipe(trainer="noise", train_s=31.0), {}),  # so long that it is not tried
        (
            Recipe(trainer="fine_tune", dataset="d"),
            {"verify_replay_s": 0},
        ),  # ended at its first read
    ],
)
def test_a_long_training_is_kept_unverified_and_compared_when_it_is_recovered(
    db: Database, recipe: Recipe, options: Mapping[str, Any]
) -> None:
    save(db, "long", module_of(db, "r"), recipe, options=options)
    assert model_row(db, "long")["replayed_s"] is None
    with pytest.raises(errors.RecipeMismatch):
        recovered(db, "long")


def test_a_recipe_saved_in_another_environment_warns_with_the_difference(db: Database) -> None:
    save(db, "tuned", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    db.sql(
        "UPDATE mmdb.environment "
        """SET details = CAST(replace(CAST(details AS text), '"torch', '"old torch') AS json)"""
    )
    with pytest.warns(errors.EnvironmentDiffers) as caught:
        recovered(db, "tuned")
    text = str(caught[0].message)
    assert "Model tuned@1 was saved in another environment (unknown): torch: none then" in text
    assert f"old torch: {torch.__version__} then, none now" in text


def test_no_warning_where_nothing_differs(db: Database) -> None:
    save(db, "tuned", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recovered(db, "tuned")


def test_a_trainer_must_be_registered(db: Database) -> None:
    with pytest.raises(errors.UnknownTrainer, match="no trainer 'magic'") as caught:
        save(db, "tuned", module_of(db, "r"), Recipe(trainer="magic"))
    assert "register_trainer" in caught.value.hint
    save(db, "tuned", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    db.sql("DELETE FROM mmdb.trainer WHERE name = 'fine_tune'")
    with pytest.raises(errors.UnknownTrainer, match="no trainer 'fine_tune'"):
        recovered(db, "tuned")


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("tests.trainers:missing", errors.TrainerFailed),
        ("no.such:thing", errors.TrainerFailed),
        ("os.system('x')", errors.TrainerFailed),
        ("tests.trainers:noise", errors.AlreadyExists),
    ],
)
def test_a_bad_registration_is_refused(
    db: Database, target: str, error: type[errors.MmdbError]
) -> None:
    name = "noise" if error is errors.AlreadyExists else "new"
    with pytest.raises(error), db.connection.transaction():
        db.sql(f"SELECT mmdb.register_trainer('{name}', $${target}$$)")


# -- ancestors ----------------------------------------------------------------


def test_a_parent_that_does_not_exist_is_refused(db: Database) -> None:
    with pytest.raises(errors.ModelNotFound, match="'nobody'"):
        save(db, "tuned", module_of(db, "r"), Recipe(trainer="noise"), parent="nobody")


def without_checks(db: Database) -> None:
    """Let the test break what foreign keys hold."""
    if db.connection.engine == "postgres":
        db.sql("SET LOCAL session_replication_role = replica")


def test_a_parent_that_is_gone_is_named(db: Database) -> None:
    save(db, "tuned", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    without_checks(db)
    parent = find_model(db.connection, "r").model_id
    db.sql(f"DELETE FROM mmdb.model WHERE model_id = {parent}")
    with pytest.raises(errors.NotReplayable, match=f"the parent of tuned@1, model {parent}, is"):
        recovered(db, "tuned")


def test_a_model_with_neither_weights_nor_recipe_is_named(db: Database) -> None:
    save(db, "tuned", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    db.sql("DELETE FROM mmdb.recipe")
    with pytest.raises(errors.NotReplayable, match="tuned@1 has neither weights nor a recipe"):
        recovered(db, "tuned")


def test_ancestors_in_a_circle_are_found(db: Database) -> None:
    save(db, "first", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    second = Recipe(trainer="every_generator")
    module = module_of(db, "first")
    seed_everything(0)
    trainers.every_generator(module, data_of(db))
    save(db, "second", module, second, parent="first")
    ids = {name: find_model(db.connection, name).model_id for name in ("first", "second")}
    db.sql(f"UPDATE mmdb.model SET parent_id = {ids['second']} WHERE model_id = {ids['first']}")
    for name in ids:
        with pytest.raises(errors.NotReplayable, match="go round in a circle") as caught:
            recovered(db, name)
        assert re.search(rf"Model {name}@1 .* at {name}@1", caught.value.message)


def test_a_recipe_never_reads_another_dataset_of_the_same_name(db: Database) -> None:
    save(db, "tuned", trained(db, lr=1e-3, epochs=2), FINE_TUNED)
    number = find_dataset(db.connection, "d").dataset_id
    db.drop_dataset("d", force=True)
    db.sql("UPDATE mmdb.dataset SET name = 'd' WHERE name = 'other'")
    assert dataset_of(db.connection, number).dropped
    assert not find_dataset(db.connection, "d").dropped
    with pytest.raises(errors.NotReplayable, match="Dataset 'd'"):
        recovered(db, "tuned")


def test_the_server_replays_a_recipe_to_predict_with_it(db: Database, lasting: None) -> None:
    x = [0.5] * WIDTH
    expected = db.predict("r", x)
    save_candidate(db.connection, candidate_id(db), "kept", approach="provenance")
    prune(db)
    assert db.predict("kept", x) == expected
