"""The layers that have a form for several networks at once, and a whole network of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from mmdb.train.stack import column_layers, layers, picture_layers, token_layers
from mmdb.train.stack.flow import WIDTH, Flow, Form, Generators, Layer, Tensors

#: By class: what inherits from one may compute something else.
Forms = Mapping[type[nn.Module], Form]
#: Of networks that `mmdb.graph.factories.mlp` without batch_norm, and `linear`, make.
PLAIN: Forms = {**layers.PLAIN, **column_layers.PLAIN}
FORMS: Forms = {
    **PLAIN,
    **layers.FORMS,
    **column_layers.FORMS,
    **picture_layers.FORMS,
    **token_layers.FORMS,
}


def stacked(
    modules: Sequence[nn.Module],
    tensors: Tensors,
    draws: Generators,
    *,
    unit: int = WIDTH,
    forms: Forms = FORMS,
) -> Callable[[Tensor], Tensor]:
    """Return what makes the outputs of all members, (members, n, ...), of their rows, in training.

    Args: see `mmdb.train.stack.flow.Layer`.
    Raises:
        NotStackable
    """
    # In such networks each layer has the slopes of the next one as a whole; a look costs time.
    settles = not all(type(one) in layers.PLAIN for one in modules[0].modules())
    layer = Layer(
        modules=modules, tensors=tensors, draws=draws, forms=forms, unit=unit, settles=settles
    )
    step = layer.step()
    return lambda x: step(Flow(x)).plain()
