"""Rows forgotten, with all that came of them: `forget` and `remake` in SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mmdb.arguments import check_flag, unfit
from mmdb.data import node_cache
from mmdb.data.dataset import StoredDataset, dataset_of, find_dataset
from mmdb.data.forgetting import Erasure
from mmdb.db.citus import clear_caches, is_spread
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import acting_as, require_author, require_owner
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped, InvalidOption, ModelNotFound, RunFailed
from mmdb.lineage.entity import kind_of, numbers
from mmdb.lineage.finding import lineage
from mmdb.lineage.graph import Step
from mmdb.server.backend import Backend
from mmdb.server.retraining import calibrated_alike, find_shards, repeat_run
from mmdb.store.models import registry
from mmdb.store.models.model_rows import SavedModel, find_members, model_of
from mmdb.train.drive.run_requests import drop_run
from mmdb.train.replay.mean_saving import save_better_mean, save_mean_of
from mmdb.train.replay.saving import save_on_either_side

_Q, _RUNS = load("forgetting"), load("runs")
MODELS = ("remake", "withdraw")
NOTE_BYTES = 1000
_EMPTIED = "No row to train on is left."


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingAction:
    """What is done to one partition, run or model that forgotten rows have reached.

    Attributes:
        entity: as `lineage` takes it.
        action: erase: rows of it; drop: all of it; withdraw: a version of a model; remake: a
            version, which another takes the place of; check: it is left to people.
        row_count: of the rows in a partition.
    """

    entity: str
    action: str
    reason: str
    row_count: int | None = None
    before_hash: str | None = None
    after_hash: str | None = None
    model_id: int | None = None


def forget(
    backend: Backend,
    dataset: str,
    condition: str | None,
    models: str,
    note: str | None,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """Erase rows from a dataset, and what came of them; return what they had reached.

    It is one transaction. Models that are to be made again answer until `remake` has done so.

    Args:
        dataset: its name: all of its versions lose the rows.
        condition: SQL on the columns of its query; None: the rows that the query does not return
            any more.
        models: remake: those that have met the rows are made again without them, where a run
            made them; withdraw: they are dropped.
        note: kept with the record.
        dry_run: only say what would be done.
    Raises:
        DatasetNotFound, DatasetDropped, DataError, QueryError, InvalidOption, RightsMissing
        RunBusy: a run that has met the rows is being trained.
    """
    connection = backend.connection
    if models not in MODELS:
        raise unfit("models", models, f"Known: {', '.join(MODELS)}.")
    if note is not None and not 0 < len(note.encode()) <= NOTE_BYTES:
        raise InvalidOption(f"The note is empty, or longer than {NOTE_BYTES} bytes.")
    check_flag(dry_run, "dry_run")
    with connection.transaction():
        newest = find_dataset(connection, dataset)
        if newest.dropped:
            raise DatasetDropped(f"Dataset {dataset!r} has been dropped.", hint="It has no rows.")
        require_owner(connection, "dataset", newest.name, newest.dataset_id)
        require_author(connection, newest.name, newest.dataset_id)
        if not dry_run:
            origin_id = newest.origin_id or newest.dataset_id
            connection.rows(load("datasets").hold_dataset, dataset_id=origin_id)
        reached = _Reached(connection, newest, Erasure(connection, newest, condition))
        steps = reached.steps(models)
        if not dry_run:
            steps = reached.write(steps, note)
    if not dry_run:
        node_cache.clear()  # some are decoded as models of other datasets take them
        if is_spread(connection):
            clear_caches(connection)
    names = ("entity", "action", "row_count", "reason")
    return [{name: getattr(step, name) for name in names} for step in steps]


class _Reached:
    """The datasets, runs and models that forgotten rows have reached."""

    def __init__(self, connection: Connection, newest: StoredDataset, erasure: Erasure) -> None:
        self._connection, self._newest, self.erasure = connection, newest, erasure
        # What a test slice alone has had, no run has met.
        met = {p.dataset.dataset_id: p.dataset for p in erasure.partitions if p.part.role != "test"}
        self._datasets = [*met]
        edges: list[Step] = []
        for one in met.values():
            edges += lineage(connection, f"dataset:{one.name}", "down", hops=False)
        nodes = _below([f"dataset:{one.name}" for one in met.values()], edges)
        by_kind: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            by_kind[kind_of(node)].append(node)
        self._outside = [*by_kind["table"], *by_kind["file"], *by_kind["database"]]
        candidates = [numbers(node)[0] for node in by_kind["candidate"]]
        given = {"dataset_ids": self._datasets, "candidate_ids": candidates}
        self._runs = connection.rows(_Q.find_runs, **given)
        references = [node.removeprefix("model:") for node in by_kind["model"]]
        self._models = [
            model_of(connection, row["model_id"])
            for row in connection.rows(_Q.find_models, references=references)
        ]
        for row in self._runs:
            require_owner(connection, "run", row["name"], row["run_id"])
        for model in self._models:
            require_owner(connection, "model", model.reference, model.model_id)

    def steps(self, models: str) -> list[ForgettingAction]:
        """Return what is to be done, in order."""
        steps = [
            ForgettingAction(
                entity=f"partition:{one.part.part_id}",
                action="erase",
                reason=f"Of {one.dataset.name}, {one.part.role}.",
                row_count=one.rows,
                before_hash=one.part.content_hash.hex(),
            )
            for one in self.erasure.partitions
        ]
        part_ids = [one.part.part_id for one in self.erasure.partitions]
        features = self._connection.rows(_Q.find_features, part_ids=part_ids)
        for feature_id in sorted({row["feature_id"] for row in features}):
            reason = "What frozen layers made of the rows; it can be computed again."
            steps.append(
                ForgettingAction(entity=f"feature:{feature_id}", action="drop", reason=reason)
            )
        for row in self._runs:
            reason = "Its checkpoints go, its hops stay as lineage."
            steps.append(
                ForgettingAction(entity=f"run:{row['name']}", action="drop", reason=reason)
            )
        for one in self.erasure.emptied:
            steps.append(
                ForgettingAction(entity=f"dataset:{one.name}", action="drop", reason=_EMPTIED)
            )
        steps += [self._model_step(model, models) for model in self._models]
        return steps + self._left_to_people()

    def _model_step(self, model: SavedModel, models: str) -> ForgettingAction:
        action, reason = "withdraw", "Asked for."
        if models == "remake":
            action, reason = "remake", "CALL mmdb.remake() makes it again; it answers until then."
            if model.candidate_id is None:
                action, reason = "withdraw", "No run has made it, which could be repeated."
            elif model.dataset_id in {one.dataset_id for one in self.erasure.emptied}:
                action, reason = "withdraw", _EMPTIED
            elif model.manifest_id is None:
                reason = "CALL mmdb.remake() makes it again; as a recipe it cannot be read before."
        return ForgettingAction(
            entity=f"model:{model.reference}",
            action=action,
            reason=reason,
            before_hash=model.weights_hash.hex(),
            model_id=model.model_id,
        )

    def _left_to_people(self) -> list[ForgettingAction]:
        steps = []
        for node in self._outside:
            reason = "A model that has met the rows filled it, or was copied there."
            steps.append(ForgettingAction(entity=node, action="check", reason=reason))
        own_id = self._newest.origin_id or self._newest.dataset_id
        given = {"dataset_id": self._newest.dataset_id}
        for row in self._connection.rows(_Q.find_neighbours, **given):
            if row["origin_id"] != own_id:
                reason = "It reads a table that this dataset reads, and may have the rows too."
                entity = f"dataset:{row['name']}"
                steps.append(ForgettingAction(entity=entity, action="check", reason=reason))
        if any(column.transform is not None for column in self._newest.columns):
            reason = (
                "Statistics of transforms stay as they were fitted with the rows: "
                "refresh_dataset(..., fit => true) fits anew."
            )
            entity = f"dataset:{self._newest.name}"
            steps.append(ForgettingAction(entity=entity, action="check", reason=reason))
        return steps

    def write(self, steps: list[ForgettingAction], note: str | None) -> list[ForgettingAction]:
        """Do what can be done at once, and record all of it; return the steps with hashes."""
        connection = self._connection
        hashes = self.erasure.write()
        part_ids = [one.part.part_id for one in self.erasure.partitions]
        features = load("features")
        for row in connection.rows(_Q.find_features, part_ids=part_ids):
            connection.run(features.delete_part_blocks, **row)
            connection.run(features.delete_part, **row)
        model_ids = [model.model_id for model in self._models]
        given = {"dataset_ids": self._datasets, "model_ids": model_ids}
        evaluations = connection.rows(_Q.find_evaluations, **given)
        for query in (_Q.clear_figures, _Q.delete_slices):
            connection.run(query, evaluation_ids=[row["evaluation_id"] for row in evaluations])
        withdrawn = {step.model_id for step in steps if step.action == "withdraw"}
        for model in self._models:
            if model.model_id in withdrawn:
                registry.withdraw(connection, model)
        for row in self._runs:
            drop_run(connection, row["name"])
        (added,) = connection.rows(
            _Q.add_forgetting,
            dataset_id=self._newest.dataset_id,
            row_count=self.erasure.row_count,
            note=note,
        )
        for ordinal, step in enumerate(steps):
            known = asdict(step)
            if step.action == "erase":
                (part_id,) = numbers(step.entity)
                known["after_hash"] = hashes[part_id].hex()
            is_done = step.action not in ("remake", "check")
            connection.run(_Q.add_step, **added, ordinal=ordinal, **known, is_done=is_done)
        return steps


def _below(starts: Iterable[str], edges: Iterable[Step]) -> list[str]:
    """Return what can be reached over edges, without what was made of tables of predictions."""
    children: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        children[edge.parent].append(edge.child)
    left, seen = [*starts], dict.fromkeys(starts)
    while left:
        node = left.pop()
        for child in children[node] if kind_of(node) != "table" else ():
            if child not in seen:
                seen[child] = None
                left.append(child)
    return sorted(seen)


# -- models made again ------------------------------------------------------------------


def next_remake(backend: Backend) -> list[dict[str, Any]]:
    """Create the run that makes the next model without its forgotten rows; return its name.

    Versions whose run is trained take the place of the old ones first. A model is trained as it
    was, on what is left of the same version of its dataset; the new version takes its aliases, and
    the old one is dropped.

    Returns:
        run and model; nothing where no model is left.
    """
    connection = backend.connection
    for step in connection.rows(_Q.find_open_steps):
        old = model_of(connection, step["model_id"])
        if step["is_dropped"]:
            _end(connection, step, old, None, "It was dropped before it was made again.")
            continue
        if shards := find_shards(connection, old):
            if (run := _mean_again(backend, step, old, shards)) is not None:
                return [{"run": run, "model": old.reference}]
            continue
        try:
            run = _run_of(backend, step, old)
        except ModelNotFound as error:
            _end(connection, step, old, None, f"It cannot be made again: {error.message}")
            continue
        best = connection.rows(_RUNS.find_trained, name=run)
        if not best:
            return [{"run": run, "model": old.reference}]
        saved = save_better_mean(connection, run, best[0]["candidate_id"], old.name)
        saved = saved or save_on_either_side(connection, best[0]["candidate_id"], old.name)
        said = f"Made again by run {run!r}."
        if _resumes(connection, old.candidate_id) and not _resumes(connection, **best[0]):
            said += " Its optimizer began anew: the state that it went on from is gone."
        _end_made(backend, step, old, saved["model_id"], said, [run])
    return []


def check_trained(before: Sequence[Row], begun: Sequence[Row]) -> None:
    """Check that `next_remake` does not return the run that was just trained.

    Raises:
        RunFailed
    """
    if before and before[0]["run"] == begun[0]["run"]:
        raise RunFailed(f"Run {begun[0]['run']!r} was trained, and no model came of it.")


def _mean_again(backend: Backend, step: Row, old: SavedModel, shards: Sequence[Row]) -> str | None:
    """Make the mean of the shards of a dataset again; return the run that is to be trained first.

    Those that had met no forgotten row are taken from the mean as it was.
    """
    connection = backend.connection
    runs: list[str] = []
    candidates: list[int] = []
    for place, row in enumerate(shards):
        if row["has_met"] and not row["is_emptied"]:
            member = replace(old, **{key: row[key] for key in ("candidate_id", "dataset_id")})
            run = _run_of(backend, step, member, place + 1)
            best = connection.rows(_RUNS.find_trained, name=run)
            if not best:
                return run
            runs.append(run)
            candidates.append(best[0]["candidate_id"])
        elif not row["is_emptied"]:
            candidates.append(row["candidate_id"])
    if len(candidates) < 2:
        _end(connection, step, old, None, "Of its shards none, or one alone, has a row left.")
        return None
    assert old.dataset_id is not None
    saved = save_mean_of(connection, old.name, candidates, old.dataset_id, old)
    told = f"Made again: {len(runs)} of its {len(shards)} shards had met the rows."
    _end_made(backend, step, old, saved["model_id"], told, runs)
    return None


def remake(backend: Backend, workers: int | None) -> dict[str, Any]:
    """Train what `next_remake` returns, until nothing is left; return how many runs that were.

    Interrupted, it goes on when it is called again.
    """
    from mmdb.server.run_functions import train_to_its_end  # loads torch

    trained, before = 0, list[dict[str, Any]]()
    while begun := next_remake(backend):
        check_trained(before, begun)
        backend.pause()  # what trains it sees it only now
        train_to_its_end(backend, begun[0]["run"], workers)
        trained, before = trained + 1, begun
    return {"trained": trained}


def _run_of(backend: Backend, step: Row, old: SavedModel, shard: int | None = None) -> str:
    """Return the run that makes a model again, created unless it is there.

    Args:
        shard: the model is the mean of shards, and its candidate and dataset are those of this one.
    Raises:
        ModelNotFound: what the model began with is gone.
    """
    connection = backend.connection
    made = connection.rows(
        _Q.find_made_again, forgetting_id=step["forgetting_id"], candidate_id=old.candidate_id
    )
    if made:  # another version is the same candidate
        return str(made[0]["run"])
    which = f"{old.version}" if shard is None else f"{old.version}-shard-{shard}"
    name = f"{old.name}/{which}-without-{step['forgetting_id']}"
    if not connection.rows(_RUNS.find_run, name=name):
        assert old.dataset_id is not None
        dataset = dataset_of(connection, old.dataset_id)
        whole = shard is None and bool(find_members(connection, old.model_id))
        with connection.transaction(), acting_as(connection, step["owner"]):
            repeat_run(
                backend,
                name,
                old,
                dataset,
                whole=whole,
                warm_start=_warm_start(connection, step),
                resumes=_resumes(connection, old.candidate_id),
                exactly=True,
            )
    return name


def _resumes(connection: Connection, candidate_id: int | None) -> bool:
    """Return whether a candidate began with the optimizer of its parent, too."""
    began = connection.rows(_Q.find_parent, candidate_id=candidate_id)
    return bool(began) and began[0]["parent_state"] is not None


def _warm_start(connection: Connection, step: Row) -> str:
    """Return what a model's run began with, as it is now."""
    parent = str(step["warm_start"])
    if parent == "auto":
        found = connection.rows(_Q.find_parent, candidate_id=step["candidate_id"])
        parent = model_of(connection, found[0]["parent_id"]).reference if found else "off"
    replaced = {row["old"]: row["new"] for row in connection.rows(_Q.find_replaced)}
    while parent in replaced:
        parent = replaced[parent] or "off"
    return parent


def _end_made(
    backend: Backend, step: Row, old: SavedModel, model_id: int, said: str, runs: Sequence[str]
) -> None:
    """Record that a model is made again, calibrated as it was."""
    connection = backend.connection
    with connection.transaction():
        new, doubt = calibrated_alike(backend, model_of(connection, model_id), old)
        _end(connection, step, old, new, f"{said} {doubt}".strip(), runs)


def _end(
    connection: Connection,
    step: Row,
    old: SavedModel,
    new: SavedModel | None,
    reason: str,
    runs: Sequence[str] = (),
) -> None:
    """Record what became of a model; what training saved of the runs that made it again goes."""
    with connection.transaction():
        if not step["is_dropped"]:
            registry.withdraw(connection, old, new)
        connection.run(
            _Q.end_step,
            forgetting_id=step["forgetting_id"],
            ordinal=step["ordinal"],
            action="withdraw" if new is None else "remake",
            new_model_id=None if new is None else new.model_id,
            after_hash=None if new is None else new.weights_hash.hex(),
            reason=reason,
        )
    for row in connection.rows(_Q.find_models, references=[f"{run}@1" for run in runs]):
        registry.withdraw(connection, model_of(connection, row["model_id"]))
