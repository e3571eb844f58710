"""Builds an architecture, as the user wrote it: a module whose weights depend on a seed alone."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mmdb.arguments import is_whole
from mmdb.errors import (
    ArchitectureError,
    FactoryFailed,
    OutOfMemory,
    OutputMismatch,
    UnknownFactory,
    stops_the_caller,
)
from mmdb.graph.spec.factory_call import Dtypes, Outputs, Shape
from mmdb.graph.spec.factory_call import resolve as resolve
from mmdb.graph.spec.layer_graph import build_layers
from mmdb.graph.spec.parse import canonical as canonical
from mmdb.graph.spec.parse import factories_in
from mmdb.graph.spec.parse import parse as parse
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.memory import require, shortage
from mmdb.messages import explain, show

if TYPE_CHECKING:
    from mmdb.graph.trace.structure import NetworkGraph

MAX_PARAMETERS = 1_000_000_000
#: What builds an architecture that is made of others, by a key that it has.
_MADE_OF_OTHERS = {
    "backbone": "mmdb.graph.spec.head:build_headed",
    "network": "mmdb.graph.grouped:build_grouped",
    "adapted": "mmdb.graph.adapted:build_adapted",
    "mean": "mmdb.graph.mean:build_mean",
}
_MOST_GUESSED = 4  # inputs whose dtypes are tried one by one


@dataclass(frozen=True)
class BuildRequest:
    """The other arguments of `build`, passed on to build networks that are made of networks."""

    arguments: Mapping[str, object]
    input_shape: Shape
    outputs: Outputs
    factories: Mapping[str, str]
    max_parameters: int

    def build(self, architecture: str | Mapping[str, object], **changes: Any) -> nn.Module:
        """Return the module of one of the others, with changes to what was asked for."""
        return build(architecture, **(vars(self) | changes))


# torch has one default generator per process: whoever borrows it holds this lock.
_generator_lock = threading.RLock()


def build(
    architecture: str | Mapping[str, object],
    arguments: Mapping[str, object],
    input_shape: Shape,
    outputs: Outputs,
    factories: Mapping[str, str],
    *,
    max_parameters: int = MAX_PARAMETERS,
) -> nn.Module:
    """Return the architecture's module, with weights from torch's current generator.

    Args:
        architecture: what `parse` takes.
        arguments: the candidate's; they override the architecture's own, or its backbone's.
        input_shape: of one row, without the batch; at least one dimension. Several inputs are
            {name: shape}; then the module is called with one keyword argument for each.
        outputs: number of classes, or 1 for a regression. Several labels are {name: number}; then
            the module returns a dict by name, or a tuple in this order.
        factories: registered name -> 'package.module:callable'.
    Raises:
        UnknownFactory: the name is not in `factories`.
        FactoryFailed: the factory cannot be imported, raised, or returned no usable module.
        InvalidLayerGraph: the layer graph is not well formed, or too large.
        CutNotFound, NotACut, HeadMismatch: of a backbone with a head.
    """
    parsed = parse(architecture)
    _check_sizes(input_shape, outputs)
    for key, builder in _MADE_OF_OTHERS.items():
        if key in parsed:
            request = BuildRequest(arguments, input_shape, outputs, factories, max_parameters)
            return cast("nn.Module", resolve(builder)(parsed, request))
    if "layers" in parsed:
        shape, number = _single(input_shape, outputs)
        return build_layers(parsed, arguments, shape, number, max_parameters=max_parameters)
    name = cast("str", parsed["factory"])
    own = cast("Mapping[str, object]", parsed["arguments"])
    check_factories(parsed, factories)
    factory, given = resolve(factories[name]), {**own, **arguments}
    if factories[name].startswith("mmdb.graph."):
        _single(input_shape, outputs)
        if torch.get_default_device().type != "meta":
            # Ours work on the meta device, which allocates nothing; a stranger's may not.
            try:
                with on_meta():
                    built = _call(name, factory, input_shape, outputs, given)
                    _check_parameters(name, built, max_parameters)
            except FactoryFailed as error:
                if "meta tensor" not in str(error.__cause__):
                    raise
                # A library's network that computes its sizes by tensors, such as a RegNet.
    module = _call(name, factory, input_shape, outputs, given)
    _check_parameters(name, module, max_parameters)
    return module


def initial_module(
    architecture: str | Mapping[str, object],
    arguments: Mapping[str, object],
    input_shape: Shape,
    outputs: Outputs,
    factories: Mapping[str, str],
    *,
    seed: int,
    max_parameters: int = MAX_PARAMETERS,
) -> nn.Module:
    """Return `build`'s module with weights drawn from `seed`; torch's generator is left as it was.

    Args:
        seed: 0 to 2**64 - 1. The same seed gives the same bits, on one torch build.
    """
    with _generator_lock, torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would also seed every GPU, which fork_rng does not restore.
        torch.default_generator.manual_seed(seed)
        return build(
            architecture, arguments, input_shape, outputs, factories, max_parameters=max_parameters
        )


def architecture_of(
    architecture: str | Mapping[str, object],
    arguments: Mapping[str, object],
    input_shape: Shape,
    outputs: Outputs,
    factories: Mapping[str, str],
) -> NetworkGraph:
    """Return what an architecture, as `build` takes it, computes.

    It is built on the meta device, which allocates nothing, or if its factory does not
    work there, with weights that are thrown away; torch's generator is left as it was.

    Raises:
        ArchitectureError: as `build`.
    """
    from mmdb.graph.trace.call_tracer import trace  # most who build do not trace

    try:
        with on_meta():
            return trace(build(architecture, arguments, input_shape, outputs, factories))
    except FactoryFailed:
        pass
    return trace(initial_module(architecture, arguments, input_shape, outputs, factories, seed=0))


def check_output(
    module: nn.Module,
    input_shape: Shape,
    outputs: Outputs,
    dtypes: Dtypes = "float32",
    *,
    per_token: bool = False,
) -> None:
    """Run a batch of two zeros; nothing of the module or of torch's generator changes.

    Args:
        per_token: the outputs are of each token of a row; a network may know more of them.
    Raises:
        OutputMismatch: the result is not float (2, outputs), or (2,) when there is one output;
            for several labels, not one such tensor for each; per token not (2, length, outputs).
        FactoryFailed: `forward` raised.
    """
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    result = _run_in_eval(module, _zeros(input_shape, dtypes, device))
    if per_token:
        assert isinstance(outputs, int)
        _check_tokens(result, cast("tuple[int, ...]", input_shape), outputs)
        return
    if isinstance(outputs, int):
        _check_result("the model", result, outputs)
        return
    found = list(result) if isinstance(result, tuple | list) else result
    if isinstance(found, Mapping):
        found = [found[name] for name in outputs if name in found]
    if not isinstance(found, list) or len(found) != len(outputs):
        raise OutputMismatch(
            f"the model returns a {_describe(result)} for the labels {', '.join(outputs)}",
            hint="Return a dict of tensors by label, or a tuple of them in this order.",
        )
    for (name, size), tensor in zip(outputs.items(), found, strict=True):
        _check_result(f"for label {name!r} the model", tensor, size)


def output_shape(module: nn.Module, input_shape: Shape) -> tuple[int, ...]:
    """Return the shape of the tensor that a module gives for a row, from a run as `check_output`.

    Inputs are taken for float32, or for int64 where the module reads no others.

    Raises:
        FactoryFailed: `forward` raised.
        NotACut: the module is a backbone whose output is no tensor of features.
    """
    tensors = (*module.parameters(), *module.buffers())
    device = next((t.device for t in tensors), torch.empty(0).device)
    names = tuple(input_shape) if isinstance(input_shape, dict) else ()
    kinds = product(("float32", "int64"), repeat=min(len(names), _MOST_GUESSED) or 1)
    failure: FactoryFailed | None = None
    for kind in kinds:
        guessed = (*kind, *(kind[-1:] * len(names)))
        dtypes: Dtypes = dict(zip(names, guessed, strict=False)) if names else kind[0]
        try:
            result = cast("Tensor", _run_in_eval(module, _zeros(input_shape, dtypes, device)))
            return tuple(result.shape[1:])
        except FactoryFailed as exc:
            failure = failure or exc
    assert failure is not None
    raise failure


def _check_tokens(result: object, shape: tuple[int, ...], size: int) -> None:
    found = tuple(result.shape) if isinstance(result, Tensor) else ()
    if found[:-1] != (2, *shape) or found[-1] < size:
        what = f"shape {found}" if found else f"a {_describe(result)}"
        raise OutputMismatch(
            f"the model returns {what} for a batch of 2; next tokens need (2, {shape[0]}, {size})",
            hint="It returns a number for each token that may be next, at each place of a row, as "
            "transformers:gpt2 does.",
        )


def _check_result(what: str, result: object, size: int) -> None:
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise OutputMismatch(f"{what} returns a {_describe(result)}, not a tensor of floats")
    allowed = [(2, size), (2,)] if size == 1 else [(2, size)]
    if tuple(result.shape) not in allowed:
        raise OutputMismatch(
            f"{what} returns shape {tuple(result.shape)} for a batch of 2; "
            f"the labels need (2, {size})"
        )


def _zeros(shape: Shape, dtypes: Dtypes, device: torch.device) -> Tensor | dict[str, Tensor]:
    if not isinstance(shape, dict):
        assert isinstance(dtypes, str)
        return torch.zeros(2, *shape, dtype=getattr(torch, dtypes), device=device)
    kinds = dict.fromkeys(shape, dtypes) if isinstance(dtypes, str) else dtypes
    return {
        name: torch.zeros(2, *one, dtype=getattr(torch, kinds[name]), device=device)
        for name, one in shape.items()
    }


def parameter_count(module: nn.Module) -> int:
    """Return how many numbers the module's parameters hold; a shared one counts once."""
    return sum(p.numel() for p in module.parameters())


def _run_in_eval(module: nn.Module, batch: Tensor | dict[str, Tensor]) -> object:
    modes = {part: part.training for part in module.modules()}
    inputs = batch if isinstance(batch, dict) else {"": batch}
    devices = [t.device for t in inputs.values() if t.device.type != "cpu"][:1]
    kind = devices[0].type if devices else "cpu"
    try:
        with _generator_lock, torch.random.fork_rng(devices, device_type=kind), torch.no_grad():
            module.eval()
            return module(**batch) if isinstance(batch, dict) else module(batch)
    except (ArchitectureError, OutOfMemory):  # of a backbone that returns no features
        raise
    except BaseException as exc:  # forward is the owner's code
        if stops_the_caller(exc):
            raise
        if (short := shortage(exc)) is not None:
            raise short from exc
        shapes = ", ".join(f"{name} {tuple(t.shape)}".strip() for name, t in inputs.items())
        raise FactoryFailed(
            f"the model cannot read a batch of shape {shapes}: "
            f"{type(exc).__name__}: {explain(exc)}",
            hint="Check the model against the dataset's input shape (options.shape).",
        ) from exc
    finally:
        for part, was_training in modes.items():
            part.training = was_training


def _call(
    name: str,
    factory: Callable[..., object],
    input_shape: Shape,
    outputs: Outputs,
    arguments: Mapping[str, object],
) -> nn.Module:
    _check_arguments(name, factory, input_shape, outputs, arguments)
    try:
        module = factory(input_shape, outputs, **arguments)
    except (ArchitectureError, OutOfMemory):
        raise
    except BaseException as exc:  # a factory is the owner's code, which may raise anything
        if stops_the_caller(exc):
            raise
        if (short := shortage(exc)) is not None:
            raise short from exc
        raise FactoryFailed(f"factory {name} raised {type(exc).__name__}: {explain(exc)}") from exc
    if not isinstance(module, nn.Module):
        raise FactoryFailed(f"factory {name} returned a {_describe(module)}, not a torch.nn.Module")
    for path, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise FactoryFailed(
                f"factory {name} returned a module that keeps {path}, which is no tensor",
                hint="Register what must be kept as a buffer.",
            )
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise FactoryFailed(
            f"factory {name} returned a module with lazy layers",
            hint="Give every layer its sizes, so that its weights exist before the first batch.",
        )
    return module


def _check_arguments(
    name: str,
    factory: Callable[..., object],
    input_shape: Shape,
    outputs: Outputs,
    arguments: Mapping[str, object],
) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C, without a signature
        return
    try:
        signature.bind(input_shape, outputs, **arguments)
    except TypeError as exc:
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        shown = inspect.Signature(bare)
        raise FactoryFailed(
            f"factory {name}: {explain(exc)}", hint=f"Its signature: {name}{shown}"
        ) from exc


def _check_parameters(name: str, module: nn.Module, max_parameters: int) -> None:
    sizes = [(p.numel(), p.nbytes) for p in module.parameters()]
    count = sum(number for number, _ in sizes)
    if count > max_parameters:
        raise FactoryFailed(
            f"factory {name} makes {count:,} parameters; the limit is {max_parameters:,}",
            hint="Make the model smaller.",
        )
    require(sum(size for _, size in sizes), f"What factory {name} makes")


def _check_sizes(input_shape: Shape, outputs: Outputs) -> None:
    shapes = input_shape.values() if isinstance(input_shape, dict) else (input_shape,)
    numbers = tuple(outputs.values()) if isinstance(outputs, dict) else (outputs,)
    for shape in shapes or ((),):
        sizes = (*shape, *(numbers or (0,)))
        whole = all(is_whole(n, 1) for n in sizes)
        if not shape or not whole or math.prod(shape) >= 2**31:
            raise FactoryFailed(
                f"no model reads rows of shape {show(shape)} for {show(outputs)} outputs",
                hint="The dataset needs at least one feature, and the label at least one class.",
            )


def _single(input_shape: Shape, outputs: Outputs) -> tuple[tuple[int, ...], int]:
    """Return the only input's shape and the only label's outputs.

    Raises:
        FactoryFailed: there are several.
    """
    if isinstance(input_shape, dict) or isinstance(outputs, dict):
        raise FactoryFailed(
            "layer graphs and mmdb's own factories have one input and one label",
            hint="Register a factory for several: docs/candidates.md shows one.",
        )
    return input_shape, outputs


def check_factories(parsed: Mapping[str, object], factories: Mapping[str, str]) -> None:
    """Raise where a parsed architecture takes a factory that is not registered.

    Raises:
        UnknownFactory
    """
    for name in factories_in(parsed):
        if name not in factories:
            close = get_close_matches(name, factories, n=3) or sorted(factories)[:10]
            raise UnknownFactory(
                f"there is no factory {name!r}; did you mean {' or '.join(close)}?"
                if close
                else f"there is no factory {name!r}, nor any other"
            )


def _describe(value: object) -> str:
    return f"tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
