"""The zoo of parents: finding one, saying who is in it, and beginning with a parent's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmdb.api.calls import Calls

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mmdb.store.parents import ParentChoice
    from mmdb.store.parents.managing import ZooDecision
    from mmdb.store.parents.suggesting import ParentSuggestion, SimilarModel
    from mmdb.train.warm.transfer_rows import Transferred


class ParentCalls(Calls):
    """Part of `Database`."""

    def match(
        self,
        architecture: nn.Module | str | Mapping[str, Any],
        *,
        k: int = 10,
        dataset: str | None = None,
        metric: str | None = None,
        input_shape: Sequence[int] | None = None,
        outputs: int | None = None,
        sample: int = 0,
    ) -> ParentChoice:
        """Return the best parent for an architecture, if one fits, and the k models looked at.

        Args:
            architecture: a module, a model as `name@version`, a factory or a layer graph; the
                last two need `input_shape` and `outputs`, or a dataset that has them: that of
                `dataset`, else the newest one.
            dataset: what is to be trained on; models of it come first, then those of its task.
            metric: what models are compared by, such as "accuracy".
            sample: rows of the dataset by which LogME ranks the five best anew.
        Raises:
            ArchitectureError: it cannot be built, or has more than 50,000 nodes.
            DatasetNotFound, ModelNotFound, InvalidOption
        """
        from mmdb.arguments import check_whole
        from mmdb.server.matching import ParentQuery, find_parents
        from mmdb.train.replay.recipe_replay import recover_module

        asked = ParentQuery(
            architecture=architecture,
            dataset=dataset,
            metric=metric,
            input_shape=input_shape,
            outputs=outputs,
            k=check_whole(k, "k", 1, 10_000),
            sample=check_whole(sample, "sample", 0, 10_000),
        )
        return find_parents(
            self.connection, asked, lambda saved: recover_module(self.connection, saved)
        )

    def zoo_admit(self, model: str, reason: str = "on request") -> str:
        """Offer a model as a parent, whatever the rules say of its metrics; return `name@version`.

        Raises:
            ModelNotFound
        """
        from mmdb.store.parents.judging import say

        return say(self.connection, model, "admitted", reason)

    def zoo_refuse(self, model: str, reason: str = "on request") -> str:
        """Offer a model as a parent no longer; the model itself stays.

        Raises:
            ModelNotFound
        """
        from mmdb.store.parents.judging import say

        return say(self.connection, model, "refused", reason)

    def manage_zoo(
        self, budget_bytes: int | None = None, *, dry_run: bool = True
    ) -> list[ZooDecision]:
        """Refuse outliers and near-duplicates; drop the models worth least until the rest fits.

        Args:
            budget_bytes: for the stored tensors of all models; None drops nobody.
            dry_run: say what would be decided, and write nothing.
        Raises:
            InvalidOption
        """
        from mmdb.store.parents.managing import manage_zoo

        return manage_zoo(self.connection, budget_bytes=budget_bytes, dry_run=dry_run)

    def similar_models(self, model: str, k: int = 10) -> list[SimilarModel]:
        """Return the k models whose weights are most like a model's, the likely parent first.

        Each says as what it is suggested, and how alike it is. Nothing is written.

        Raises:
            ModelNotFound, InvalidOption
        """
        from mmdb.store.parents.suggesting import similar_models

        return similar_models(self.connection, model, k)

    def propose_parents(self) -> list[ParentSuggestion]:
        """Return the parent that the weights suggest for each model without lineage.

        Nothing is written: pass what you agree with to `accept_parent`.
        """
        from mmdb.store.parents.suggesting import propose_parents

        return propose_parents(self.connection)

    def accept_parent(self, model: str, parent: str | None) -> str:
        """Say what a model without lineage was made from; None takes that back.

        Lineage shows it as `accepted`. Returns the model as `name@version`.

        Raises:
            ModelNotFound, RightsMissing
            InvalidOption: the parent was told when the model was saved, or was made from it.
        """
        from mmdb.store.parents.suggesting import accept_parent

        return accept_parent(self.connection, model, parent)

    def warm_start(
        self,
        module: nn.Module,
        parent: str = "auto",
        *,
        inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor | None = None,
        dataset: str | None = None,
        metric: str | None = None,
        threshold: float | None = None,
        coverage: float | None = None,
        shrink: float | None = None,
        seed: int = 0,
    ) -> Transferred:
        """Copy a parent's tensors into a module, in place, before it is trained.

        Where no parent fits, nothing changes: the result's `parent` is None, and `reason` says why.
        Pass the result to `save(..., warm=result)`, and lineage shows where the model came from.

        Args:
            parent: "auto" for the best model of the zoo, or `name`, `name@version`, `name@alias`.
            inputs: what the forward takes, by position or by name, if that is not found otherwise;
                values do not matter.
            dataset: what the module is to be trained on: models of it come first, and it has the
                shape of the input.
            metric: what models are compared by, such as "accuracy".
            threshold, coverage: the least similarity, and the least share of the parameters that
                the parent gives, both 0 to 1; 0.35 and 0.2 if left out.
            shrink: multiplies what comes from the parent, above 0 up to 1; 1 - shrink times the
                module's own parameters are added (shrink and perturb).
            seed: of the shares that copies of a unit have.
        Raises:
            ModelNotFound, DatasetNotFound, InvalidOption
            ArchitectureError: the module's forward cannot be followed, or it cannot be written to.
        """
        from mmdb.arguments import check_whole
        from mmdb.server.matching import check_metric
        from mmdb.train.warm.outside import warm_start
        from mmdb.train.warm.warm_options import parse_warm_options

        given = {"threshold": threshold, "coverage": coverage, "shrink": shrink}
        return warm_start(
            self.connection,
            module,
            parent,
            inputs=inputs,
            dataset=dataset,
            metric=check_metric(metric),
            options=parse_warm_options(
                {k: v for k, v in given.items() if v is not None}, prefix=""
            ),
            seed=check_whole(seed, "seed", 0, 2**63 - 1),
        )
