"""Calls of an open database that keep models up to date: retrain, roll back, forget, remake."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mmdb.api.calls import Calls
from mmdb.data import node_cache
from mmdb.data.names import reference_of
from mmdb.db.connection import Row
from mmdb.server.arguments import json_text

if TYPE_CHECKING:
    from mmdb.api.run import Run


class RetrainingCalls(Calls):
    """Part of `Database`."""

    @abstractmethod
    def run(self, name: str) -> Run:
        """Return a run."""

    def retrain(
        self,
        model: str,
        *,
        mode: str = "continue",
        replay: float = 0.2,
        epochs: int | None = None,
        refresh: bool = True,
        gate: Mapping[str, Any] | None = None,
        alias: str | None = None,
        workers: int | None = None,
    ) -> Row:
        """Refresh a model's dataset, retrain it, and promote the new version if it is good enough.

        Each step is kept: called again after an interruption, it goes on. docs/living.md.

        Args:
            model: name, name@version or name@alias, of a run.
            mode: "continue" from its weights on new rows and some old, "scratch" on all rows with
                what it was made with, or "search" anew as its run did.
            replay: share of the old rows that "continue" trains on again.
            epochs: None: as many as mode needs.
            refresh: whether the dataset is refreshed first.
            gate: metric (that of the run), at_least (0.0: how much better it must be, negative: how
                much worse it may be) and significance (None; such as 0.05).
            alias: moves to the new version if it passes; None: that of `model`, if it names one.
            workers: as `Run.train` has it.
        Returns:
            run, model, new_model, dataset, metric, old_value, new_value, chance, passed, alias and
            reason; run and new_model are None where nothing is new.
        Raises:
            ModelNotFound, DatasetDropped, InvalidOption, RightsMissing, DataError, QueryError
        """
        from mmdb.judge.gate import Gate
        from mmdb.server.retraining import check_metric

        parsed = Gate.parse(gate)
        asked = reference_of(model)
        given = {"model": model, "mode": mode, "replay": replay, "epochs": epochs}
        (begun,) = self._call("begin_retraining", refresh=refresh, **given)
        if begun["run"] is None:
            names = ("new_model", "metric", "old_value", "new_value", "chance", "alias")
            return {**dict.fromkeys(names), **begun, "passed": False}
        check_metric(self.connection, begun["run"], parsed)
        self.run(begun["run"]).train(workers=workers)
        (ended,) = self._call(
            "end_retraining",
            run=begun["run"],
            gate=None if gate is None else json_text(gate, "gate"),
            alias=alias or (asked.alias if asked else None),
        )
        return dict(ended)

    def forget(
        self,
        dataset: str,
        condition: str | None = None,
        *,
        models: str = "remake",
        note: str | None = None,
        dry_run: bool = False,
    ) -> list[Row]:
        """Erase rows from a dataset, and what came of them; return what they had reached.

        One transaction, kept in the view `mmdb.forgetting_overview`. docs/living.md.

        Args:
            condition: SQL on the columns of the dataset's query, such as "customer_id = 42"; None:
                the rows that the query does not return any more.
            models: "remake": those that have met the rows answer until `remake` has made them
                again; "withdraw": they are dropped.
            note: kept with the record, such as the number of a request; up to 1000 bytes.
            dry_run: only say what would be done.
        Returns:
            entity, action (erase, drop, remake, withdraw or check), row_count and reason of each.
        Raises:
            DatasetNotFound, DatasetDropped, DataError, QueryError, InvalidOption, RightsMissing
            RunBusy: a run that has met the rows is being trained.
        """
        given = {"condition": condition, "models": models, "note": note, "dry_run": dry_run}
        found = list(self._call("forget", dataset=dataset, **given))
        if not dry_run:
            node_cache.clear()  # this machine's, where the server has another
        return found

    def remake(self, workers: int | None = None) -> int:
        """Train models again without rows that were forgotten; return how many runs that took.

        Each new version takes the place of an old one, which is dropped. Interrupted, it goes on
        when it is called again.

        Args:
            workers: as `Run.train` has it.
        Raises:
            RightsMissing, RunBusy, RunFailed, and what training raises.
        """
        from mmdb.server.forgetting import check_trained

        trained, before = 0, list[Row]()
        while begun := self._call("next_remake"):
            check_trained(before, begun)
            self.run(begun[0]["run"]).train(workers=workers)
            trained, before = trained + 1, begun
        return trained

    def rollback_alias(self, model: str, alias: str) -> str:
        """Let an alias point at where it was before; return that as `name@version`.

        Raises:
            AliasNotFound: it was nowhere else, or there is no such alias. ModelNotFound
        """
        from mmdb.store.models import registry

        return registry.rollback_alias(self.connection, model, alias)
