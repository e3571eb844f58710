"""Optuna's view of a search: it suggests configurations and tells which candidates lag behind.

Optuna is imported when it is first needed. It sees candidates as trials that follow from what is
known of them, and each suggestion has a seed of its own: so nothing that it does depends on what
was asked of it before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mmdb.train.search.search_log import PATIENCE, Trial
from mmdb.train.search.search_space import Dimension, Values

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial, TrialState


#: Stands for a score that is no number: percentiles cannot count with infinities.
WORST = -1e300


class Study:
    """Suggests configurations by TPE and prunes candidates.

    Args:
        dimensions: of the search space.
        epochs: of the run; a candidate that has done them is complete.
        multivariate: whether TPE models the dimensions together (Falkner et al. 2018).
        pruner: an Optuna pruner.
    Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NIPS 2011;
        Optuna's TPESampler, whose constant liar keeps it away from what is being tried.
    """

    def __init__(
        self,
        dimensions: Mapping[str, Dimension],
        *,
        epochs: int,
        multivariate: bool = True,
        pruner: BasePruner | None = None,
    ) -> None:
        self._dimensions, self._epochs = dimensions, epochs
        self._multivariate, self._pruner = multivariate, pruner
        self._distributions = {
            name: _distribution(dimension)
            for name, dimension in dimensions.items()
            if len(dimension.ends()) > 1
        }
        self._trials: dict[int, FrozenTrial] = {}

    def results(self, members: Sequence[Trial]) -> int:
        """Return how many candidates have a result to learn from."""
        return sum(m.number is not None and bool(m.scores) and self._settled(m) for m in members)

    def suggest(self, members: Sequence[Trial], seed: int) -> dict[str, Any]:
        """Return a value for every dimension, also for those that will not count."""
        from optuna.samplers import TPESampler

        sampler = TPESampler(
            seed=seed, n_startup_trials=0, multivariate=self._multivariate, constant_liar=True
        )
        trial = self._study(members, sampler).ask(self._distributions)
        return {
            name: _value(dimension, trial.params.get(name, 0))
            for name, dimension in self._dimensions.items()
        }

    def prunes(self, member: Trial, members: Sequence[Trial]) -> bool:
        """Return whether the pruner gives a candidate up after its last report."""
        if self._pruner is None:
            return False
        return self._pruner.prune(self._study(members), self._trial(member))

    def _settled(self, member: Trial) -> bool:
        """Return whether what a candidate has shown counts as its result, for now."""
        return member.promoted or not member.in_flight

    def _study(self, members: Sequence[Trial], sampler: BaseSampler | None = None) -> OptunaStudy:
        from optuna import create_study
        from optuna.samplers import RandomSampler

        trials = [self._trial(member) for member in members if member.number is not None]
        with _quiet():
            return create_study(
                storage=_storage(trials),
                sampler=sampler or RandomSampler(seed=0),
                study_name="search",  # otherwise random
                direction="maximize",
            )

    def _trial(self, member: Trial) -> FrozenTrial:
        from optuna.trial import TrialState

        trial = self._trials.get(member.ordinal)
        if trial is None:
            trial = self._trials[member.ordinal] = self._new_trial(member)
        if len(trial.intermediate_values) < len(member.scores):
            trial.intermediate_values = {  # Optuna counts steps from 0
                epoch - 1: max(score, WORST) for epoch, score in member.scores.items()
            }
        trial.state = state = self._state(member)
        trial.values = [max(member.best, WORST)] if state == TrialState.COMPLETE else None
        return trial

    def _state(self, member: Trial) -> TrialState:
        from optuna.trial import TrialState

        if member.failed:
            return TrialState.FAIL
        if member.scores and (member.epoch >= self._epochs or member.stopped == PATIENCE):
            return TrialState.COMPLETE
        if not self._settled(member):
            return TrialState.RUNNING
        return TrialState.PRUNED if member.scores else TrialState.FAIL

    def _new_trial(self, member: Trial) -> FrozenTrial:
        from optuna.trial import TrialState, create_trial

        parameters = {
            name: _parameter(self._dimensions[name], member.config[name])
            for name in self._distributions
            if name in member.config
        }
        trial = create_trial(
            state=TrialState.RUNNING,
            params=parameters,
            distributions={name: self._distributions[name] for name in parameters},
        )
        trial.number = member.ordinal + 1  # 0 is the trial that is being asked for
        return trial


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Values):  # values may be objects, so Optuna sees their places
        return CategoricalDistribution(range(len(dimension.values)))
    low, high = dimension.ends()
    if dimension.whole:
        return IntDistribution(int(low), int(high), log=dimension.log)
    return FloatDistribution(low, high, log=dimension.log)


def _parameter(dimension: Dimension, value: Any) -> Any:
    if isinstance(dimension, Values):
        return dimension.values.index(value)
    low, high = dimension.ends()  # a draw in the logarithm may round past an end
    return min(max(value, low), high)


def _value(dimension: Dimension, parameter: Any) -> Any:
    if isinstance(dimension, Values):
        return dimension.values[parameter]
    ends = dimension.ends()
    return ends[0] if len(ends) == 1 else parameter


def _storage(trials: list[FrozenTrial]) -> Any:
    """Return Optuna's storage in memory that shows these trials."""
    from optuna.storages import InMemoryStorage

    class Shown(InMemoryStorage):
        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Any = None
        ) -> list[FrozenTrial]:
            return [t for t in trials if states is None or t.state in states]

    return Shown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from printing that a study was created, and leave its verbosity as it was."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def make_pruner(name: str, arguments: Mapping[str, float], *, maximize: bool) -> BasePruner:
    """Return an Optuna pruner: "median", "percentile" or "threshold".

    Args:
        arguments: checked; `startup`, `warmup`, `interval` and `percentile`, or `lower`, `upper`.
        maximize: whether more of the metric is better; the study sees scores, of which it is.
    """
    from optuna import pruners

    warmup = {
        "n_warmup_steps": int(arguments.get("warmup", 0)),
        "interval_steps": int(arguments.get("interval", 1)),
    }
    if name == "threshold":
        lower, upper = arguments.get("lower"), arguments.get("upper")
        if not maximize:
            lower, upper = (None if end is None else -end for end in (upper, lower))
        return pruners.ThresholdPruner(lower=lower, upper=upper, **warmup)
    return pruners.PercentilePruner(
        arguments.get("percentile", 50.0),
        n_startup_trials=int(arguments.get("startup", 5)),
        **warmup,
    )
