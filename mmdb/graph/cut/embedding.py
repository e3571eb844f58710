"""A network's embedding of rows: what its last layer reads, or what a layer returns."""

from __future__ import annotations

from difflib import get_close_matches

from torch import nn

from mmdb.errors import CutNotFound, NotACut
from mmdb.graph.cut.cut import layers_to, outermost, result_at, survey
from mmdb.graph.cut.forward_steps import ForwardStep, StepTrace, TracedInputs, is_tensor
from mmdb.graph.cut.segment import Segment
from mmdb.graph.cut.step_tracer import CannotTraceSteps, trace_steps
from mmdb.messages import show

_ONE_TENSOR = "Name a layer that returns one tensor of float32: a row for each of its input."


def embedding_of(module: nn.Module, layer: str | None, *, inputs: TracedInputs = None) -> Segment:
    """Return the layers up to an embedding: inputs -> (n, size), float32.

    What has more dimensions is pooled as features are before a head: the mean over the positions
    of a sequence or a map. They are in eval mode for ever.

    Args:
        layer: path of the module whose output it is; None: it is what `last_layer` reads.
    Raises:
        CutNotFound: there is no such module, or it does not run.
        NotACut: it runs several times or returns more than one tensor, or the forward of a module
            that holds it cannot be followed.
    """
    path = last_layer(module, inputs) if layer is None else layer
    try:
        ends = result_at if layer is not None else _read_by
        return layers_to(module, [(path, "mean", None)], inputs, single=True, end_at=ends)
    except (CutNotFound, NotACut) as error:
        raise type(error)(error.message, hint=_hint(module, path, inputs)) from error


def last_layer(module: nn.Module, inputs: TracedInputs = None) -> str:
    """Return the path of the last module to run that has a matrix, or a larger tensor, of its own.

    Raises:
        NotACut: the forward cannot be followed, or there is no such module.
    """
    try:
        followed = trace_steps(module, inputs=inputs)
    except CannotTraceSteps as error:
        raise NotACut(f"the network's forward cannot be followed: {error}") from error
    path: str
    for path, _ in reversed(followed.results):
        weights = module.get_submodule(path).parameters(recurse=False)
        if path and any(weight.ndim > 1 for weight in weights):
            return path
    raise NotACut("the network has no layer with weights", hint=_ONE_TENSOR)


def _read_by(
    module: nn.Module, followed: StepTrace, path: str, inputs: TracedInputs
) -> ForwardStep:
    """Return the step whose result the module at a path reads first; see `result_at`."""
    layer = result_at(module, followed, path, inputs)
    read = [*layer.args, *layer.kwargs.values()][:1]
    if not read or not is_tensor(read[0], followed):
        raise NotACut(f"{show(path)} reads more than one tensor", hint=_ONE_TENSOR)
    found: ForwardStep = read[0]
    return found


def _hint(module: nn.Module, path: str, inputs: TracedInputs) -> str:
    """Return the sentence that names layers: those named much as the path, or the outermost."""
    known = [name for name, works in survey(module, inputs) if works]
    names = get_close_matches(path, known, 3, 0.5) or outermost(known)
    return f"layer is the path of a module, such as {', '.join(names)}." if names else _ONE_TENSOR
