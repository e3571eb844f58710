"""Beginning with a parent's tensors outside of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmdb.db.url import AnyConnection

if TYPE_CHECKING:  # these load torch
    import torch
    from torch import nn

    from mmdb.train.warm.transfer_rows import Transferred


class WarmStarts:
    """Part of `Zoo`."""

    connection: AnyConnection

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
