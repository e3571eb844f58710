"""Means saved as models: of a run's best candidates, where that is better, and of its shards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from mmdb.data.dataset import dataset_of
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import acting_for
from mmdb.db.queries import load
from mmdb.errors import (
    BackboneMissing,
    DatasetDropped,
    FactoryFailed,
    NotANumber,
    OutOfMemory,
    StateNotFound,
)
from mmdb.graph.mean import BY_TASK, MeanOf, mean_of
from mmdb.graph.spec.layer_form import traced
from mmdb.graph.spec.parse import with_arguments
from mmdb.store.models.model_rows import ModelDefinition, SavedModel, find_members
from mmdb.store.models.save import About, save_model
from mmdb.train.candidate.setup import Setup, setup_of_candidate
from mmdb.train.compute.device import CPU
from mmdb.train.compute.exact import exact
from mmdb.train.compute.hop import HopOutcome, blaming_the_model, measured, outputs_on
from mmdb.train.ledger.run_options import ensemble_of
from mmdb.train.replay.recipe_replay import recover_module
from mmdb.train.replay.saving import best_checkpoint, candidate_definition, module_at
from mmdb.train.search.mean_choice import best_mean
from mmdb.train.values.row_batch import Partition, tensors_of
from mmdb.train.values.spec import CandidateSpec

_Q = load("runs")
#: Candidates of a run that are asked, those at the head of its leaderboard.
_ASKED = 12
#: Why no mean is taken: code that the server alone can import; rows, states or frozen layers that
#: are gone; networks that do not fit into memory side by side.
_CANNOT = (BackboneMissing, DatasetDropped, FactoryFailed, OutOfMemory, StateNotFound)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contender:
    """A candidate as its best epoch left it."""

    candidate: Row  # of `find_candidate`
    epoch: int
    form: dict[str, object]  # its architecture, its own arguments within
    module: nn.Module
    outputs: Tensor | None  # of the validation slice, (n, size)

    @property
    def key(self) -> tuple[int, int]:
        """What a model's member is known by."""
        return self.candidate["candidate_id"], self.epoch


def save_better_mean(
    connection: Connection, run: str, best_id: int, name: str | None = None
) -> Row | None:
    """Save the mean of a run's best candidates, where it is better than one of them.

    The same mean is saved once.

    Args:
        best_id: the candidate at the head of the leaderboard.
        name: of the model; None: that of the run.
    Returns:
        model_id, name, version and members; None where the best candidate alone is better, the
        run does not ask for a mean, or its validation slice cannot be read here.
    """
    (best,) = connection.rows(load("hops").find_candidate, candidate_id=best_id)
    most = ensemble_of(json.loads(best["options"]))
    if most < 2:
        return None
    rows = connection.rows(_Q.find_contenders, run=run, most=_ASKED)
    if len(rows) < 2:
        return None
    try:
        judge = _Judge(connection, best)
        found = [judge.contender(row["candidate_id"]) for row in rows]
    except _CANNOT:
        return None
    places = best_mean(
        len(found), lambda places: judge.worth([found[k] for k in places]), most=most
    )
    if len(places) < 2:
        return None
    chosen = [found[k] for k in places]
    return _save(connection, name or run, judge, chosen, chosen[0].candidate["dataset_id"])


def save_mean_of(
    connection: Connection,
    name: str,
    candidate_ids: Sequence[int],
    dataset_id: int,
    old: SavedModel | None = None,
) -> Row:
    """Save the mean of candidates of several runs, those of a dataset's shards, once.

    Args:
        dataset_id: the dataset.
        old: a version before, which has those of the candidates already that it is the mean of.
    Returns:
        model_id, name, version and members.
    """
    (first,) = connection.rows(load("hops").find_candidate, candidate_id=candidate_ids[0])
    judge = _Judge(connection, first)
    kept = {}
    if old is not None:
        children = recover_module(connection, old).children()
        for key, module in zip(find_members(connection, old.model_id), children, strict=True):
            kept[key[0]] = (key[1], module)
    members = [
        judge.contender(candidate_id, kept.get(candidate_id)) for candidate_id in candidate_ids
    ]
    return _save(connection, name, judge, members, dataset_id)


class _Judge:
    """The validation slice of a run, and what candidates and their means make of it."""

    def __init__(self, connection: Connection, best: Row) -> None:
        """Args: best: the row of the candidate whose loss counts for all."""
        self._connection = connection
        self._factories, self._functions = find_factories(connection), find_functions(connection)
        spec = CandidateSpec.from_row(best, self._factories, self._functions)
        self._setup: Setup = setup_of_candidate(spec, 0)
        self._averages = BY_TASK[spec.targets[0].task]
        dataset = dataset_of(connection, best["dataset_id"])
        self._rows: Partition | None = None
        for part in dataset.partitions:
            if part.role == "validation":
                read = read_partition(connection, part.part_id, part.content_hash)
                self._rows = tensors_of(read)

    def contender(self, candidate_id: int, kept: tuple[int, nn.Module] | None = None) -> _Contender:
        """Return a candidate with what it says of the slice.

        Args:
            kept: its best epoch and its module then, where its checkpoint is not asked.
        """
        (row,) = self._connection.rows(load("hops").find_candidate, candidate_id=candidate_id)
        definition = candidate_definition(row)
        if kept is None:
            _, checkpoint = best_checkpoint(self._connection, row)
            kept = checkpoint["epoch"], module_at(self._connection, row, checkpoint)
        epoch, module = kept
        outputs = None
        if self._rows is not None:
            with exact(0, device=CPU), blaming_the_model():
                (outputs,) = outputs_on(module, self._rows[0], self._setup.targets)
        return _Contender(
            candidate=row,
            epoch=epoch,
            form=with_arguments(definition.architecture, definition.arguments),
            module=module,
            outputs=outputs,
        )

    def measured(self, members: Sequence[_Contender]) -> HopOutcome | None:
        """Return what a validation says of the mean of some candidates; None where there is none.

        Raises:
            NotANumber
        """
        outputs = [member.outputs for member in members if member.outputs is not None]
        if self._rows is None:
            return None
        output = mean_of(outputs, self._averages) if len(outputs) > 1 else outputs[0]
        with exact(0, device=CPU):
            return measured([output], self._rows[1], self._setup, CPU)

    def worth(self, members: Sequence[_Contender]) -> float | None:
        """Return the objective of a mean as a number of which more is better; None: it has none."""
        try:
            found = self.measured(members)
        except NotANumber:
            return None
        value = found.objective if found else None
        if value is None:
            return None
        return value if self._setup.objective.maximize else -value

    def definition(self, members: Sequence[_Contender]) -> ModelDefinition:
        """Return what builds the module of a mean."""
        forms = [member.form for member in members]
        return replace(
            candidate_definition(members[0].candidate),
            architecture={"mean": forms, "averages": self._averages},
            arguments={},
        )

    def module(self, members: Sequence[_Contender]) -> nn.Module:
        """Return the module of a mean."""
        return MeanOf([member.module for member in members], self._averages)


def _save(
    connection: Connection,
    name: str,
    judge: _Judge,
    members: Sequence[_Contender],
    dataset_id: int,
) -> Row:
    """Save a mean by its weights, unless the name has it; its first member is its candidate."""
    first, keys = members[0], [member.key for member in members]
    listed = {"members": tuple(candidate_id for candidate_id, _ in keys)}
    with connection.transaction(), acting_for(connection, first.key[0]):
        for there in connection.rows(_Q.find_means, name=name, candidate_id=first.key[0]):
            if find_members(connection, there["model_id"]) == keys:
                return dict(there) | listed
        module, found = judge.module(members), judge.measured(members)
        saved = save_model(
            connection,
            name,
            module,
            approach="snapshot",
            about=About(
                definition=judge.definition(members),
                trace=lambda: traced(module),
                dataset_id=dataset_id,
                candidate_id=first.key[0],
                epoch=first.epoch,
                metrics=found.metrics if found else {},
                members=keys,
            ),
        )
    return {"model_id": saved.model_id, "name": saved.name, "version": saved.version} | listed
