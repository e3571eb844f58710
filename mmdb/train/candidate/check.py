"""Whether a candidate can train, found out before anything is written. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mmdb.data.target import Target
from mmdb.graph.build import build, check_output
from mmdb.graph.sizes import Dtypes, Shape, outputs_asked
from mmdb.train.candidate.config import Config
from mmdb.train.candidate.functions import Functions
from mmdb.train.candidate.losses import TrainRows
from mmdb.train.candidate.optimizer import check_steps, make_optimizer, make_schedule
from mmdb.train.candidate.setup import check_setup, setup_of


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
        optimizer = make_optimizer(module, setup.config)
        make_schedule(optimizer, setup.config)
        check_steps(setup.config)

    def _module(self, config: Config) -> nn.Module:
        key = json.dumps(config.arguments, sort_keys=True)
        if key not in self._built:
            outputs = outputs_asked(self.targets)
            module = build(
                self.architecture, config.arguments, self.input_shape, outputs, self.factories
            )
            check_output(module, self.input_shape, outputs, self.input_dtype)
            self._built = {key: module}  # the last: a grid varies other dimensions meanwhile
        return self._built[key]
