"""Heads: what is trained on features, and the network that a backbone and a head make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from mmdb.errors import ArchitectureError, HeadMismatch, UnknownFactory
from mmdb.graph.cut.cut import backbone_of
from mmdb.graph.cut.pool import pooled_shape as pooled_shape
from mmdb.graph.cut.pool import resolve_pool as resolve_pool
from mmdb.graph.cut.segment import input_names_of, signed
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import MAX_PARAMETERS, BuildRequest, build, check_output, output_shape
from mmdb.graph.spec.factory_call import Outputs


def build_head(
    head: str | Mapping[str, object],
    feature_shape: tuple[int, ...],
    outputs: Outputs,
    factories: Mapping[str, str],
    *,
    max_parameters: int = MAX_PARAMETERS,
    check: bool = True,
) -> nn.Module:
    """Return a head over features, with weights from torch's current generator.

    Args:
        head: an architecture as `mmdb.graph.spec.parse.parse` takes it: 'linear',
            'mlp(hidden=[64])', a factory or a layer graph.
        feature_shape: of one row, after the pool.
        outputs: as `mmdb.graph.spec.build.build` takes it.
        factories: registered name -> target; those that mmdb ships are known without.
        check: whether to run two rows through it.
    Raises:
        HeadMismatch: it cannot be built over these features, or gives other outputs.
        UnknownFactory: its factory is not registered.
    """
    known = {**SHIPPED, **factories}
    try:
        made = build(head, {}, feature_shape, outputs, known, max_parameters=max_parameters)
        if check:
            check_output(made, feature_shape, outputs)
    except (UnknownFactory, HeadMismatch):
        raise
    except ArchitectureError as exc:
        raise HeadMismatch(
            f"the head does not fit features of shape {feature_shape}: {exc.message}",
            hint=exc.hint,
        ) from exc
    return made


class Headed(nn.Module):
    """A head over the features of a backbone: `backbone.<path>` and `head.<path>`.

    It takes what the backbone takes, several inputs by name too.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.__class__ = signed(Headed, input_names_of(backbone))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the head's outputs for a batch of the backbone's inputs."""
        return self.head(self.backbone(*args, **kwargs))


def build_headed(parsed: Mapping[str, Any], request: BuildRequest) -> nn.Module:
    """Return the module of {"backbone", "cut", "pool", "head"}; see `mmdb.graph.spec.build.build`.

    Args:
        request: its arguments are of the backbone.
    Raises:
        CutNotFound, NotACut, HeadMismatch, ArchitectureError
    """
    whole, input_shape = request.build(parsed["backbone"]), request.input_shape
    cut = parsed["cut"]
    shape = output_shape(backbone_of(whole, cut, inputs=input_shape), input_shape)
    pool = resolve_pool(parsed["pool"], shape, has_head=True)
    backbone = backbone_of(whole, cut, pool, inputs=input_shape, rank=len(shape))
    head = build_head(
        parsed["head"],
        pooled_shape(pool, shape),
        request.outputs,
        request.factories,
        max_parameters=request.max_parameters,
    )
    return Headed(backbone, head)
