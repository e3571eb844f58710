"""Models retrained on what is new: `begin_retraining`, `end_retraining` and `retrain` in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mmdb.arguments import check_flag, check_whole, is_number
from mmdb.data.dataset import StoredDataset, dataset_of, find_dataset
from mmdb.data.functions import find_functions
from mmdb.data.names import reference_of
from mmdb.data.refresh import refresh_dataset
from mmdb.data.replay_sample import sample_since, version_seen
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped, InvalidInput, InvalidOption, RunFailed, RunNotFound
from mmdb.judge.gate import Gate
from mmdb.judge.resampling import drawn
from mmdb.messages import show
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend
from mmdb.server.judging import calibrate_again
from mmdb.server.metering import Metering, require_numbers
from mmdb.server.model_functions import find_predictor
from mmdb.server.sample import same_rows
from mmdb.store.models import registry
from mmdb.store.models.model_rows import SavedModel, find_members, find_model, model_of
from mmdb.train.candidate.measures import parse_measure
from mmdb.train.drive.run_creation import create_run
from mmdb.train.ledger.run_options import SAME
from mmdb.train.replay.mean_saving import save_better_mean
from mmdb.train.replay.saving import save_on_either_side
from mmdb.train.values.warm_spec import row_map
from mmdb.train.warm.warm_options import OFF

_Q, _RUNS = load("retraining"), load("runs")
MODES = ("continue", "scratch", "search")
#: Of the epochs that a model took, how many it takes to go on from its weights.
_SHARE_OF_EPOCHS = 0.2
#: Options of a search, which a single candidate does not have.
_OF_SEARCHES = ("budget_s", "ensemble", "shards")


def begin_retraining(
    backend: Backend,
    model: str,
    mode: str,
    replay: float,
    epochs: int | None,
    refresh: bool,
) -> list[dict[str, Any]]:
    """Create the run that retrains a model on the last version of its dataset; return its name.

    The same model and version give the same run, so that what was interrupted goes on.

    Args:
        model: as name, name@version or name@alias; of a run.
        mode: continue: from its weights, on new rows and a share of the old; scratch: anew with
            what it was made with, on all rows; search: the whole run anew.
        replay: of the old rows, the share that `continue` trains on again.
        epochs: None: as many as mode needs.
        refresh: whether the dataset is refreshed first.
    Returns:
        run, model, dataset and reason; no run where nothing is new.
    Raises:
        ModelNotFound, DatasetDropped, InvalidOption, RightsMissing, and what refresh_dataset raises
    """
    if mode not in MODES:
        raise InvalidOption(f"mode is {show(mode)}.", hint=f"Known: {', '.join(MODES)}.")
    if not is_number(replay, 0) or replay > 1:
        raise InvalidOption(f"replay is {show(replay)}.", hint="It is a share from 0 to 1.")
    if epochs is not None:
        check_whole(epochs, "epochs", 1, 2**31 - 1)
    connection = backend.connection
    old = find_model(connection, model)
    require_owner(connection, "model", old.reference, old.model_id)
    if old.candidate_id is None or old.dataset_id is None:
        raise InvalidOption(
            f"Model {old.reference!r} comes from no run, which could be repeated.",
            hint="Train one with create_run, and save it under this name.",
        )
    if find_shards(connection, old):
        raise InvalidOption(
            f"Model {old.reference!r} is the mean of shards of its dataset.",
            hint="Create another run with strategy => 'sisa' on the dataset's last version.",
        )
    if mode != "search" and find_members(connection, old.model_id):
        raise InvalidOption(
            f"Model {old.reference!r} is the mean of several candidates.",
            hint="Pass mode => 'search', which makes a mean again.",
        )
    seen = version_seen(connection, dataset_of(connection, old.dataset_id))
    if seen.dropped:
        raise DatasetDropped(f"Dataset {seen.name!r}, which the model learned from, is dropped.")
    origin = seen.name.removesuffix(f"@{seen.version}")
    if check_flag(refresh, "refresh"):
        refresh_dataset(connection, origin, say=backend.notice)
    newest = find_dataset(connection, origin)
    told = {"model": old.reference, "dataset": newest.name}
    if newest.version <= seen.version and mode == "continue":
        return [told | {"run": None, "reason": f"{old.reference} has seen all of {newest.name}."}]
    run = f"{old.name}/{mode}-{old.version}-on-{newest.version}"
    if not connection.rows(_RUNS.find_run, name=run):
        with connection.transaction():
            run_id = _create(backend, run, old, newest, seen, mode, float(replay), epochs)
            connection.run(_Q.add_retraining, run_id=run_id, model_id=old.model_id, mode=mode)
    return [told | {"run": run, "reason": f"{old.reference} is retrained on {newest.name}."}]


def find_shards(connection: Connection, model: SavedModel) -> list[Row]:
    """Return the shards of a dataset that a model is the mean of, in order; of others none."""
    if not find_members(connection, model.model_id):
        return []
    rows = connection.rows(load("forgetting").find_shards, model_id=model.model_id)
    return rows if len({row["run_id"] for row in rows}) > 1 else []


def _create(
    backend: Backend,
    name: str,
    old: SavedModel,
    newest: StoredDataset,
    seen: StoredDataset,
    mode: str,
    replay: float,
    epochs: int | None,
) -> int:
    connection = backend.connection
    if mode != "continue":
        return repeat_run(backend, name, old, newest, whole=mode == "search", epochs=epochs)
    (made,) = connection.rows(_Q.find_made, candidate_id=old.candidate_id)
    if "network" in json.loads(made["architecture"]):
        raise InvalidOption(
            f"Model {old.reference!r} is one of groups, which cannot go on from weights.",
            hint="Pass mode => 'scratch'.",
        )
    return repeat_run(
        backend,
        name,
        old,
        sample_since(connection, newest, seen, replay),
        warm_start=old.reference,
        resumes=True,
        epochs=epochs or max(1, round(_SHARE_OF_EPOCHS * (old.epoch or made["epochs"]))),
    )


def repeat_run(
    backend: Backend,
    name: str,
    old: SavedModel,
    dataset: StoredDataset,
    *,
    whole: bool = False,
    warm_start: str = "off",
    resumes: bool = False,
    epochs: int | None = None,
    exactly: bool = False,
) -> int:
    """Create the run of a model again; return run_id.

    Args:
        dataset: what it trains on.
        whole: search as its run did; else only the model's own candidate is trained.
        warm_start: see `create_run`.
        resumes: whether the optimizer of the model that it begins with goes on.
        epochs: None: as many as its run had.
        exactly: by the strategy that it was trained with, and not by the simplest one.
    """
    connection = backend.connection
    (made,) = connection.rows(_Q.find_made, candidate_id=old.candidate_id)
    architecture, options = json.loads(made["architecture"]), json.loads(made["options"])
    search, per, strategy = json.loads(made["search"]), None, made["strategy"]
    if "network" in architecture:
        architecture, per = architecture["network"], architecture["per"]
    if not whole:
        search = {"space": {key: [value] for key, value in json.loads(made["config"]).items()}}
        options = {key: value for key, value in options.items() if key not in _OF_SEARCHES}
        # Its seeds come of its place in the run.
        options["first_candidate"] = options.get("first_candidate", 0) + made["ordinal"]
        strategy = made["taken"] if exactly and made["taken"] not in SAME else "mop"
        if strategy == "data_parallel" and made["group_size"] is not None:
            options["group"] = made["group_size"]
    given = options.pop("warm_start", None) or {}
    if warm_start != OFF:  # a model, though its run may have looked for one
        options["warm_start"] = {**given, "within_run": False, "optimizer": resumes}
        if resumes and epochs is not None:  # small steps: few rows are no reason to go far
            options["warm_start"]["lr_epochs"] = epochs
    run_id, _ = create_run(
        connection,
        name,
        dataset=f"{dataset.name}@1" if dataset.version == 1 else dataset.name,
        architecture=architecture,
        search=search,
        epochs=epochs or made["epochs"],
        strategy=strategy,
        warm_start=warm_start,
        seed=made["seed"],
        options=options,
        per=per,
        say=backend.notice,
    )
    return run_id


def end_retraining(
    backend: Backend, run: str, gate: str | None, alias: str | None
) -> list[dict[str, Any]]:
    """Save what a run of `begin_retraining` came to, judge it, and let an alias point at it.

    The new version is kept whatever the gate says. Called again, it returns what it said where it
    passed, and judges the version that there is by the gate of this call where it did not.

    Args:
        gate: see `mmdb.judge.gate.Gate`.
        alias: moves to the new version if that passes; None: nothing moves.
    Raises:
        RunNotFound: no run of this name retrains. RunFailed: it is not trained.
        InvalidOption: of the gate. InvalidName: of the alias.
    """
    connection = backend.connection
    asked = Gate.parse(None if gate is None else json_object(gate, "gate"))
    found = connection.rows(_Q.find_retraining, name=run)
    if not found:
        raise RunNotFound(
            f"No run {show(run)} retrains a model.", hint="begin_retraining names it."
        )
    row = found[0]
    require_owner(connection, "model", row["model"], row["model_id"])
    is_done = row["passed"] and (alias is None or row["alias"] is not None)
    if row["ended"] and (is_done or row["new_model"] is None):  # which may have been dropped
        return [_told(row)]
    old = model_of(connection, row["model_id"])
    if row["ended"]:
        saved = find_model(connection, row["new_model"])
    else:
        best = connection.rows(_RUNS.best_candidate, name=run)
        if not best or not row["is_trained"]:
            raise RunFailed(f"Run {run!r} is not trained.", hint="Train it first, or again.")
        best_id = best[0]["candidate_id"]
        kept = save_better_mean(connection, run, best_id, old.name)
        kept = kept or save_on_either_side(connection, best_id, old.name)
        saved = model_of(connection, kept["model_id"])
    with connection.transaction():
        new, reason = calibrated_alike(backend, saved, old)
        said = _judged(backend, old, new, row, asked)
        if reason:
            said |= {"passed": False, "reason": f"{reason} {said['reason']}"}
        if alias is not None and said["passed"]:
            said |= _promoted(connection, old, new, alias)
        connection.run(_Q.end_retraining, run_id=row["run_id"], new_model_id=new.model_id, **said)
    return [_told(connection.rows(_Q.find_retraining, name=run)[0])]


def check_metric(connection: Connection, run: str, gate: Gate) -> None:
    """Refuse a gate whose metric there is not, before its run is trained.

    Raises:
        InvalidOption
    """
    (row,) = connection.rows(_Q.find_retraining, name=run)
    if gate.metric not in (None, row["objective"]):
        dataset_id = model_of(connection, row["model_id"]).dataset_id
        assert dataset_id is not None  # as `begin_retraining` has found
        targets = dataset_of(connection, dataset_id).decoding.targets
        parse_measure(gate.metric, targets, find_functions(connection))


def calibrated_alike(backend: Backend, new: SavedModel, old: SavedModel) -> tuple[SavedModel, str]:
    """Return a new model calibrated as the old one is; or as it is, with the reason."""
    if old.calibration is None or new.calibration is not None:
        return new, ""
    try:
        return calibrate_again(backend, new, old), ""
    except (InvalidInput, InvalidOption) as error:
        return new, f"It cannot be calibrated as {old.reference} is: {error.message}"


def _judged(
    backend: Backend, old: SavedModel, new: SavedModel, row: Row, gate: Gate
) -> dict[str, Any]:
    """Return how two models compare on the rows that are held out."""
    connection = backend.connection
    said: dict[str, Any] = dict.fromkeys(("metric", "old_value", "new_value", "chance", "alias"))
    predictors = [find_predictor(backend, one.reference, of_texts=True) for one in (old, new)]
    mapped = row_map(predictors[1].decoding, predictors[0].decoding)
    if mapped.outputs or mapped.class_doubts:
        return said | {"passed": False, "reason": "It predicts other classes, as labels have come."}
    metric = gate.metric or row["objective"]
    if metric is None:
        return said | {"passed": False, "reason": "The dataset holds out nothing to compare on."}
    asked = None if metric == row["objective"] else [metric]
    meterings = [Metering(connection, one, asked) for one in predictors]
    samples = same_rows(connection, predictors, row["dataset"])
    if samples[0].slice is None:
        return said | {"passed": False, "reason": "The dataset holds out nothing to compare on."}
    values = [of(sample) for of, sample in zip(meterings, samples, strict=True)]
    if not all(metric in one for one in values):
        for predictor, sample in zip(predictors, samples, strict=True):
            require_numbers(predictor, sample)
        raise InvalidInput(
            f"Metric {metric!r} is not defined on the rows that are held out.",
            hint="Name another in the gate.",
        )
    sign = 1.0 if meterings[1].maximize[metric] else -1.0

    def gained(places: Any) -> Mapping[str, float]:
        found = [of(sample, places) for of, sample in zip(meterings, samples, strict=True)]
        if not all(metric in one for one in found):
            return {}
        return {metric: sign * (found[1][metric] - found[0][metric])}

    gain = sign * (values[1][metric] - values[0][metric])
    draws = drawn(samples[0].row_count, gained).get(metric)
    chance = 1.0
    if draws is not None:
        chance = (float((draws < gate.at_least).sum()) + 1) / (len(draws) + 1)
    return said | {
        "metric": metric,
        "old_value": values[0][metric],
        "new_value": values[1][metric],
        "chance": chance,
        "passed": gate.passes(gain, chance),
        "reason": gate.reason(metric, values[0][metric], values[1][metric], gain, chance),
    }


def _promoted(
    connection: Connection, old: SavedModel, new: SavedModel, alias: str
) -> dict[str, Any]:
    """Let an alias point at a new version, unless somebody has moved it meanwhile."""
    found = connection.rows(load("registry").find_alias, model=old.name, alias=alias)
    at = found[0]["version"] if found else None
    if at not in (None, old.version, new.version):
        told = f"It passes, but alias {alias!r} is at version {at} meanwhile, and stays there."
        return {"passed": False, "reason": told}
    registry.set_alias(connection, old.name, new.version, alias)
    return {"alias": alias}


def _told(row: Row) -> dict[str, Any]:
    names = ("run", "model", "new_model", "dataset", "metric", "old_value", "new_value", "chance")
    return {name: row[name] for name in (*names, "passed", "alias", "reason")}


def retrain(
    backend: Backend,
    model: str,
    mode: str,
    replay: float,
    epochs: int | None,
    refresh: bool,
    gate: str | None,
    alias: str | None,
    workers: int | None,
) -> dict[str, Any]:
    """Retrain a model, judge it, and promote it; see `begin_retraining` and `end_retraining`."""
    from mmdb.server.run_functions import train_to_its_end

    parsed = Gate.parse(None if gate is None else json_object(gate, "gate"))
    asked = reference_of(model)
    alias = alias or (asked.alias if asked else None)
    (begun,) = begin_retraining(backend, model, mode, replay, epochs, refresh)
    if begun["run"] is None:
        empty = dict.fromkeys(("new_model", "metric", "old_value", "new_value", "chance", "alias"))
        return empty | begun | {"passed": False, "moved": None}
    check_metric(backend.connection, begun["run"], parsed)
    backend.pause()  # what trains it sees it only now
    train_to_its_end(backend, begun["run"], workers)
    (ended,) = end_retraining(backend, begun["run"], gate, alias)
    return ended | {"moved": ended["alias"]}
