"""What a hop of a candidate goes by: its configuration with every name resolved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmdb.data.decoding import Target
from mmdb.errors import FunctionFailed, InvalidHyperparameter, MmdbError, stops_the_caller
from mmdb.train.candidate.config import Config, parse_config
from mmdb.train.candidate.losses import LOSSES, Criterion, TrainRows, criterion_of
from mmdb.train.candidate.measures import Meter, Objective, measures_of, objective_of
from mmdb.train.candidate.named_choices import Functions, NamedChoice, function_of
from mmdb.train.values.row_batch import Inputs
from mmdb.train.values.spec import CandidateSpec


class Augmentation:
    """Augmentations in their order. Each is `callable(x, generator, **arguments) -> x`."""

    def __init__(self, choices: Sequence[NamedChoice], functions: Functions) -> None:
        """Raises: FunctionNotFound, FunctionFailed"""
        self._names = tuple(choice.name for choice in choices)
        self._functions = tuple(function_of(functions, "augmentation", c) for c in choices)

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._functions)

    def __call__(self, x: Inputs, generator: torch.Generator) -> Inputs:
        """Return the batch as the functions make it.

        Raises:
            FunctionFailed: one returned something else than inputs of as many rows and that dtype.
        """
        for name, function in zip(self._names, self._functions, strict=True):
            x = _checked(name, function, x, generator)
        return x


def _checked(
    name: str, function: Callable[..., object], x: Inputs, generator: torch.Generator
) -> Inputs:
    found = function(x, generator)
    if isinstance(x, Tensor):
        if isinstance(found, Tensor) and _alike(found, x):
            return found
    elif isinstance(found, dict) and found.keys() == x.keys():
        if all(isinstance(found[key], Tensor) and _alike(found[key], x[key]) for key in x):
            return found
    raise FunctionFailed(
        f"Augmentation {name!r} returned something else than its batch.",
        hint="It returns as many rows, of the same dtype; inputs by name stay inputs by name.",
    )


def _alike(found: Tensor, x: Tensor) -> bool:
    return len(found) == len(x) and found.dtype == x.dtype


def augmentation_generator(seed: int, device: torch.device) -> torch.Generator:
    """Return the generator of a hop's augmentations: a stream of its own, apart from dropout's."""
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8, person=b"mmdb.augment").digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Beside a state, rows and a seed, all that a hop depends on."""

    config: Config
    targets: tuple[Target, ...]
    criterion: Criterion
    augmentation: Augmentation
    measure: Meter
    objective: Objective
    lr_scale: float = 1.0  # of the optimizer's learning rates, which its state does not show


def setup_of(
    raw: Mapping[str, Any],
    targets: Sequence[Target],
    *,
    functions: Functions | None = None,
    train_rows: TrainRows | None = None,
    options: Mapping[str, Any] | None = None,
) -> Setup:
    """Return the setup of a configuration.

    Args:
        raw: hyper-parameters by name; see `parse_config`.
        functions: registered ones by kind and name.
        train_rows: for class weights that are "balanced".
        options: the run's; `metric` and `metrics` are read.
    Raises:
        InvalidHyperparameter, InvalidOption, FunctionNotFound, FunctionFailed
    """
    functions, options = functions or {}, options or {}
    config = parse_config(raw, targets, functions)
    return Setup(
        config=config,
        targets=tuple(targets),
        criterion=criterion_of(
            targets,
            config.losses,
            config.loss_weights,
            config.class_weights,
            functions,
            train_rows,
        ),
        augmentation=Augmentation(config.augment, functions),
        measure=Meter(measures_of(targets, options, functions), targets, functions),
        objective=objective_of(targets, options, functions),
    )


def setup_of_candidate(candidate: CandidateSpec, epoch: int) -> Setup:
    """Return the setup of a candidate in an epoch; see `setup_of`."""
    counts, rows = candidate.class_counts, candidate.train_rows
    setup = setup_of(
        candidate.config,
        candidate.targets,
        functions=candidate.functions,
        train_rows=TrainRows(count=rows, by_class=counts) if counts and rows else None,
        options=candidate.options,
    )
    return replace(setup, lr_scale=candidate.lr_scale if epoch < candidate.lr_epochs else 1.0)


def check_setup(setup: Setup) -> None:
    """Compute the losses of two made-up rows: some functions and arguments fail only then.

    Raises:
        InvalidHyperparameter: torch refuses an argument of a loss.
        FunctionFailed: a registered loss raised, or returned something else than a number.
    """
    triples = zip(setup.targets, setup.config.losses, setup.criterion.losses, strict=True)
    for target, choice, loss in triples:
        label = _label(target)
        size = () if target.task == "regression" else (target.size,)
        try:
            loss(torch.zeros(2, *size, requires_grad=True), label).backward()
        except MmdbError:
            raise
        except BaseException as error:  # a registered loss is the owner's code
            if stops_the_caller(error):
                raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            own = choice.name in LOSSES[target.task]
            kind = InvalidHyperparameter if own else FunctionFailed
            raise kind(f"loss {choice.name!r}: {reason}") from error


def _label(target: Target) -> Tensor:
    if target.task in ("classification", "next_token"):
        return torch.zeros(2, dtype=torch.int64)
    return torch.zeros(2) if target.task == "regression" else torch.zeros(2, target.size)
