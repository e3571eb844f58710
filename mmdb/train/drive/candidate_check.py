"""Whether a candidate can train, found out before anything is written. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from mmdb.data.decoding import Target
from mmdb.graph.cut.pool import resolve_pool
from mmdb.graph.grouped import Grouped
from mmdb.graph.spec.build import build, check_output
from mmdb.graph.spec.factory_call import Dtypes, Shape, outputs_asked
from mmdb.train.candidate.config import ARCHITECTURE_PREFIX, Config
from mmdb.train.candidate.losses import TrainRows
from mmdb.train.candidate.named_choices import Functions
from mmdb.train.candidate.setup import check_setup, setup_of
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.exact import recording
from mmdb.train.compute.optimizer import check_memory, check_steps, make_optimizer, make_schedule
from mmdb.train.compute.trainable_head import head_of
from mmdb.train.stack.grouped_pass import check_grouped
from mmdb.train.values.feature_options import FrozenOptions, frozen_of
from mmdb.train.values.spec import CandidateSpec


def checked_head(candidate: CandidateSpec, backbones: Backbones) -> nn.Module:
    """Return what trains of a candidate that freezes layers, built as for a hop.

    Raises:
        CutNotFound, NotACut, HeadMismatch, ArchitectureError
    """
    frozen = candidate.frozen
    assert frozen is not None
    shape = backbones.of(candidate).shape(frozen.cut, "none")
    pool = resolve_pool(frozen.pool, shape, has_head=frozen.head is not None)
    resolved = replace(candidate, frozen=replace(frozen, pool=pool))
    return head_of(resolved, backbones).module


@dataclass(slots=True, kw_only=True)
class CandidateCheck:
    """Builds each distinct model once and passes two rows through it."""

    architecture: Mapping[str, Any]
    input_shape: Shape
    input_dtype: Dtypes
    targets: tuple[Target, ...]
    factories: Mapping[str, str]
    functions: Functions
    train_rows: TrainRows | None
    options: Mapping[str, Any]  # the run's
    _built: dict[str, nn.Module] = field(default_factory=dict)
    _tails: dict[str, nn.Module] = field(default_factory=dict)
    _backbones: Backbones | None = None

    @recording()
    def __call__(self, raw: Mapping[str, Any]) -> None:
        """Check one configuration.

        Raises:
            ArchitectureError: the model cannot be built, or does not fit the dataset.
            InvalidHyperparameter, InvalidOption, FunctionNotFound, FunctionFailed
        """
        setup = setup_of(
            raw,
            self.targets,
            functions=self.functions,
            train_rows=self.train_rows,
            options=self.options,
        )
        check_setup(setup)
        module = self._module(setup.config)
        if setup.config.transfer is not None:
            module = self._tail(raw, setup.config.transfer)
        optimizer = make_optimizer(module, setup.config)
        make_schedule(optimizer, setup.config)
        if isinstance(module, Grouped):
            check_grouped(module, setup, optimizer)
        check_steps(setup.config)
        check_memory(module, setup.config)

    def spec(self, raw: Mapping[str, Any]) -> CandidateSpec:
        """Return a candidate of a configuration that freezes nothing."""
        rows, counts = self.train_rows, None
        if rows is not None:
            counts = {name: list(given) for name, given in rows.by_class.items()}
        return CandidateSpec(
            candidate_id=0,
            architecture=dict(self.architecture),
            config=dict(raw),
            factories=dict(self.factories),
            input_shape=self.input_shape,
            targets=self.targets,
            seed=0,
            functions={kind: dict(known) for kind, known in self.functions.items()},
            class_counts=counts,
            train_rows=None if rows is None else rows.count,
        )

    def _tail(self, raw: Mapping[str, Any], transfer: FrozenOptions) -> nn.Module:
        """Return what trains of a candidate that freezes layers; its network has been checked."""
        arguments = {k: v for k, v in raw.items() if k.startswith(ARCHITECTURE_PREFIX)}
        key = json.dumps([arguments, transfer.cut, transfer.pool, transfer.head, transfer.adapter])
        if key not in self._tails:
            spec = replace(self.spec(raw), frozen=frozen_of(transfer, seed=0))
            self._backbones = self._backbones or Backbones()
            self._tails = {key: checked_head(spec, self._backbones)}
        return self._tails[key]

    def _module(self, config: Config) -> nn.Module:
        key = json.dumps(config.arguments, sort_keys=True)
        if key not in self._built:
            outputs = outputs_asked(self.targets)
            module = build(
                self.architecture, config.arguments, self.input_shape, outputs, self.factories
            )
            check_output(
                module,
                self.input_shape,
                outputs,
                self.input_dtype,
                per_token=self.targets[0].task == "next_token",
            )
            self._built = {key: module}  # the last: a grid varies other dimensions meanwhile
        return self._built[key]
