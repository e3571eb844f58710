"""Candidates saved as models, by their weights or by the recipe that their hops are."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.data.dataset import find_dataset
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.names import check_name
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import acting_for
from mmdb.db.queries import load
from mmdb.errors import (
    BackboneMissing,
    CandidateNotFound,
    DatasetDropped,
    DefinitionMissing,
    FactoryFailed,
    ModelNotFound,
    RecipeError,
    RunNotFound,
    StateCorrupt,
    StateNotFound,
)
from mmdb.graph.grouped import Grouped
from mmdb.graph.spec.factory_call import outputs_asked
from mmdb.graph.spec.layer_form import traced
from mmdb.messages import show
from mmdb.store import states
from mmdb.store.models.approach import parse_options
from mmdb.store.models.model_rows import ModelDefinition, find_model, model_of
from mmdb.store.models.recipe import Recipe, check_recipe, mark_replayed
from mmdb.store.models.save import About, Saved, save_model
from mmdb.train.candidate.config import ARCHITECTURE_PREFIX
from mmdb.train.compute.exact import neutral
from mmdb.train.compute.live import build, restore, state_hash
from mmdb.train.compute.trainable_head import whole_module
from mmdb.train.ledger.state_history import best_epoch
from mmdb.train.replay.group_metrics import record_groups
from mmdb.train.replay.hop_replay import read_backbones
from mmdb.train.replay.recipe_replay import replay
from mmdb.train.replay.trainer import TookTooLong, find_trainer
from mmdb.train.values.feature_options import parse_frozen_options
from mmdb.train.values.spec import CandidateSpec, shape_of, targets_of

_Q = load("hops")


def save_candidate(
    connection: Connection,
    candidate_id: int,
    name: str,
    *,
    approach: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Row:
    """Save a candidate's best validated epoch, or its last where none is validated.

    The same epoch under the same name is saved once.

    Args:
        approach: "provenance" keeps no weights: the candidate's hops are the recipe.
        options: see `mmdb.store.models.approach.parse_options`.
    Returns:
        model_id, name and version.
    Raises:
        CandidateNotFound, RunNotFound, StateNotFound, StateCorrupt, InvalidName, InvalidOption
        BackboneMissing: the model whose layers it freezes was dropped, and is needed.
    """
    check_name(name)
    found = connection.rows(_Q.find_candidate, candidate_id=candidate_id)
    if not found:
        raise CandidateNotFound(f"Candidate {show(candidate_id)} does not exist.")
    candidate = found[0]
    if candidate["run_dropped"]:
        raise RunNotFound(f"The run of candidate {candidate_id} has been dropped.")
    best, checkpoint = best_checkpoint(connection, candidate)
    key = {"candidate_id": candidate_id, "epoch": checkpoint["epoch"]}
    with connection.transaction(), acting_for(connection, candidate_id):
        there = connection.rows(load("recipes").find_candidate_model, name=name, **key)
        if there:
            return there[0]
        module = module_at(connection, candidate, checkpoint)
        saved = save_model(
            connection,
            name,
            module,
            approach=approach,
            recipe=Recipe(train_s=_train_s(connection, **key)),
            options=options or {},
            about=About(
                definition=candidate_definition(candidate),
                trace=lambda: traced(module),
                dataset_id=candidate["dataset_id"],
                candidate_id=candidate_id,
                base=_adapted_model(candidate),
                epoch=checkpoint["epoch"],
                metrics=json.loads(best["metrics"]) if best else {},
            ),
        )
        if isinstance(module, Grouped):
            record_groups(connection, saved.model_id, candidate, module.eval())
        if saved.approach == "provenance":
            _hold_backbone(connection, candidate)
    return {"model_id": saved.model_id, "name": saved.name, "version": saved.version}


def _hold_backbone(connection: Connection, candidate: Row) -> None:
    """Keep the model whose layers a candidate freezes, or adapts, from being dropped before its
    recipe is kept.

    Raises:
        BackboneMissing: it is dropped already.
    """
    model_id, reference = candidate["backbone_id"], candidate["backbone"]
    for row in connection.rows(load("warm").find_adapted, candidate_id=candidate["candidate_id"]):
        model_id, reference = row["model_id"], f"{row['name']}@{row['version']}"
    if model_id is None:
        return
    connection.rows(load("registry").hold_model, model_id=model_id)
    try:
        find_model(connection, reference)
    except ModelNotFound as error:
        raise BackboneMissing(
            f"Candidate {candidate['candidate_id']} freezes layers of {reference}, "
            "which was dropped: its hops alone are no recipe.",
            hint="Save it as a snapshot.",
        ) from error


def best_checkpoint(connection: Connection, candidate: Row) -> tuple[Row | None, Row]:
    """Return the validation of a candidate's best epoch, if any, and its checkpoint.

    Raises:
        StateNotFound: it has none.
    """
    candidate_id = candidate["candidate_id"]
    validations = connection.rows(_Q.find_validations, candidate_id=candidate_id)
    best = best_epoch(validations, maximize=candidate["maximize"])
    wanted = best["state_out"] if best else None
    # A clone's first state is its parent's, and of no epoch; so is that of a warm start.
    checkpoints = [c for c in states.checkpoints(connection, candidate_id) if c["epoch"] >= 0]
    chosen = [c for c in checkpoints if wanted in (None, c["state_hash"])]
    if not chosen:
        raise StateNotFound(
            f"Candidate {candidate_id} has no checkpoint yet.",
            hint="A checkpoint is made at the end of each epoch.",
        )
    return best, chosen[-1]


def module_at(connection: Connection, candidate: Row, checkpoint: Row) -> nn.Module:
    """Return the candidate's module as a checkpoint has it: a state alone knows no ties."""
    candidate_id, wanted = candidate["candidate_id"], bytes(checkpoint["state_hash"])
    state = states.read_checkpoint(connection, checkpoint["part_id"], candidate_id, wanted.hex())
    if state is None or state_hash(state) != wanted:
        raise StateCorrupt(f"A checkpoint of candidate {candidate_id} is damaged.")
    factories, functions = find_factories(connection), find_functions(connection)
    spec = CandidateSpec.from_row(candidate, factories, functions).over(state)
    backbones = read_backbones(connection, spec)
    with neutral(spec.seed):
        live = build(spec, backbones=backbones, blank=True)
        restore(live, state)
        if isinstance(live.module, Grouped):
            return live.module.settle()
        return live.module if backbones is None else whole_module(spec, live.module, backbones)


def candidate_definition(candidate: Row) -> ModelDefinition:
    """Return what builds a candidate's module: a row of `find_candidate`.

    A head of its own is part of the architecture.
    """
    config, prefix = json.loads(candidate["config"]), ARCHITECTURE_PREFIX
    architecture = json.loads(candidate["architecture"])
    transfer = parse_frozen_options(config)
    if transfer is not None and transfer.head is not None:
        architecture = {
            "backbone": architecture,
            "cut": transfer.cut,
            "pool": candidate.get("feature_pool") or transfer.pool,
            "head": transfer.head,
        }
    return ModelDefinition(
        architecture=architecture,
        arguments={k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)},
        input_shape=shape_of(candidate),
        outputs=outputs_asked(targets_of(candidate)),
    )


def _adapted_model(candidate: Row) -> str | None:
    """Return the model that a candidate began with, if it is an adapter and the run names one."""
    is_named = candidate["warm_start"] not in ("off", "auto")
    is_adapter = "adapted" in json.loads(candidate["architecture"])
    return candidate["warm_start"] if is_named and is_adapter else None


def _train_s(connection: Connection, *, candidate_id: int, epoch: int) -> float:
    """Return the seconds of the hops up to an epoch: a replay may find no checkpoint."""
    hops = connection.rows(load("recipes").find_recipe_hops, candidate_id=candidate_id, epoch=epoch)
    return float(sum(hop["compute_s"] for hop in hops))


def save_with_recipe(
    connection: Connection,
    name: str,
    source: nn.Module | Mapping[str, torch.Tensor],
    recipe: Recipe,
    *,
    parent: str | None = None,
    approach: str = "auto",
    about: About | None = None,
    options: Mapping[str, Any] | None = None,
) -> Saved:
    """Save a model that a registered trainer made; see `mmdb.train.replay.trainer`.

    Where the recipe is kept in place of the weights, it is followed once before this returns,
    unless that takes longer than `options.verify_replay_s`: then the recipe is kept unverified
    (mmdb.recipe.replayed_s is null). With "auto", a recipe that gives other weights is not kept:
    the weights are.

    Args:
        about: `dataset_id` is the recipe's.
    Raises:
        InvalidRecipe, UnknownTrainer, DatasetNotFound, DatasetDropped: the recipe cannot be
            followed as it is.
        RecipeMismatch, TrainerFailed: it gives other weights, or none.
        ModelNotFound, InvalidOption
    """
    check_recipe(recipe)
    assert recipe.trainer is not None
    find_trainer(connection, recipe.trainer)
    about = replace(about or About(), dataset_id=_dataset_id(connection, recipe))
    limit_s = parse_options(options or {}).verify_replay_s

    def save(trusted: Recipe) -> Saved:
        with connection.transaction():
            saved = save_model(
                connection,
                name,
                source,
                parent=parent,
                approach=approach,
                recipe=trusted,
                about=about,
                options=options or {},
            )
            if saved.approach == "provenance" and (recipe.train_s or 0.0) <= limit_s:
                _verify(connection, saved, source, limit_s)
            return saved

    try:
        return save(recipe)
    except (RecipeError, DefinitionMissing) as error:
        if approach != "auto":
            raise
        return save(replace(recipe, rejected=f"following it failed: {error.message}"))


def _dataset_id(connection: Connection, recipe: Recipe) -> int | None:
    if recipe.dataset is None:
        return None
    dataset = find_dataset(connection, recipe.dataset)
    if dataset.dropped:
        raise DatasetDropped(
            f"Dataset {recipe.dataset!r} has been dropped.", hint="Create the dataset again."
        )
    return dataset.dataset_id


def _verify(
    connection: Connection,
    saved: Saved,
    source: nn.Module | Mapping[str, torch.Tensor],
    limit_s: float,
) -> None:
    """Follow a recipe that has just been stored, and note that it gave the model."""
    model = model_of(connection, saved.model_id)
    known = model.definition is not None or not isinstance(source, nn.Module)
    into = None if known else copy.deepcopy(source)
    started = perf_counter()
    try:
        replay(connection, model, into=into, deadline=started + limit_s)  # type: ignore[arg-type]
    except TookTooLong:
        return
    mark_replayed(connection, saved.model_id, perf_counter() - started)


def save_on_either_side(
    connection: Connection,
    candidate_id: int,
    name: str,
    *,
    approach: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Row:
    """Save a candidate as `save_candidate` does, in the server where it cannot be built here.

    Here comes first: the session that saves may not have torch loaded in the server.
    """
    try:
        return save_candidate(connection, candidate_id, name, approach=approach, options=options)
    except FactoryFailed:
        from mmdb.db.install import installed_mode  # loads drivers, which no server's session needs

        if connection.engine != "postgres" or installed_mode(connection) == "client":
            raise
    (row,) = connection.rows(
        load("api").save_candidate,
        candidate_id=candidate_id,
        name=name,
        approach=approach,
        options=json.dumps(options or {}),
    )
    return row
