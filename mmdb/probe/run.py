"""Runs a module and writes down every layer; leaves no trace in the module or the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from mmdb.argument_types import names_wrong_types
from mmdb.errors import InvalidInput, InvalidOption, MmdbError, TrainingFailed, stops_the_caller
from mmdb.messages import show
from mmdb.probe.compare import Comparison, compare
from mmdb.probe.digests import Digests, tensors_in
from mmdb.probe.isolation import reproducing, untouched
from mmdb.probe.observations import ProbePass, ProbeSummary
from mmdb.probe.tracer import Tracer, named_buffers, named_parameters, state, watched
from mmdb.train.compute.exact import environment

#: Makes a fresh optimizer over the module's parameters.
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@names_wrong_types
def probe(
    module: nn.Module,
    inputs: Any,
    *,
    targets: Any = None,
    loss: Callable[..., torch.Tensor] | None = None,
    optimizer: OptimizerFactory | None = None,
    mode: Literal["inference", "training"] = "inference",
    passes: int = 1,
    seed: int = 0,
    keep: Literal["digests", "tensors"] = "digests",
    layers: Sequence[str] | None = None,
    threads: int | None = None,
    deterministic: bool = True,
    max_bytes: int = 1 << 30,
) -> ProbeSummary:
    """Run `module` on `inputs` and write down what goes through each of its layers.

    Layers are the modules without children, those with parameters or buffers of their own, and
    the module itself, under the path "". Afterwards the module (weights, buffers, gradients,
    flags, attributes, hooks), torch's switches and all random generators are as they were.

    Args:
        inputs: a tensor, a tuple or list of positional or a mapping of named arguments of
            `module`. Each pass is given a copy.
        targets: second argument of `loss`, on the module's device.
        loss: called in training with the output, and with `targets` if there are any; returns one
            number. Left out: half the sum of squares of all floating-point outputs.
        optimizer: steps once after each backward pass, for example
            `lambda parameters: torch.optim.SGD(parameters, lr=0.1)`.
        mode: "inference" is a forward pass in evaluation mode; "training" is a forward pass in
            training mode and a backward pass.
        seed: of all random numbers drawn, 0 to 2**63 - 1.
        keep: "tensors" also keeps each distinct tensor, to say later how much and where it differs.
        layers: patterns (as of file names: `*`, `?`, `[...]`) of the paths to write down beside
            "". They may name any module. Parameters and buffers are written down always.
        threads: of torch on the CPU; as they are by default.
        deterministic: whether an operation that has no deterministic algorithm is an error.
        max_bytes: of the tensors kept; those that do not fit are counted in `dropped`.
    Raises:
        InvalidInput, InvalidOption: an argument cannot be used.
        TrainingFailed: the module, the loss or the optimizer raised; names the layer.
    """
    _check(module, mode=mode, passes=passes, keep=keep, seed=seed, threads=threads)
    if mode == "inference" and any(given is not None for given in (targets, loss, optimizer)):
        raise InvalidOption(
            "targets, loss and optimizer are of no use in mode 'inference'.",
            hint="Pass mode='training'.",
        )
    if targets is not None and loss is None:
        raise InvalidOption("There are targets and no loss.", hint="Pass loss(output, targets).")
    paths = watched(module, layers)
    digests = Digests(keep=keep == "tensors", max_bytes=max_bytes)
    devices = {tensor.device for _, tensor in tensors_in((inputs, targets, state(module)))}
    with (
        untouched(module),
        reproducing(seed, devices, threads=threads, deterministic=deterministic),
    ):
        parameters, buffers = _parameters(module, digests), _buffers(module, digests)
        module.train(mode == "training")
        with _blaming(lambda: " in the making of the optimizer"):
            steps = optimizer(module.parameters()) if optimizer else None
        learn = _Learning(module, loss, targets, steps) if mode == "training" else None
        return ProbeSummary(
            mode=mode,
            seed=seed,
            environment=_environment(devices),
            layers=None if layers is None else tuple(layers),
            modules=tuple((path, type(m).__name__) for path, m in module.named_modules()),
            inputs=digests.add_all(inputs),
            targets=digests.add_all(targets),
            parameters=parameters,
            buffers=buffers,
            passes=tuple(
                _pass(module, inputs, paths, digests, learn, buffers) for _ in range(passes)
            ),
            digests=digests.found,
            dropped=digests.dropped,
            tensors=digests.tensors,
        )


def reproducible(
    module: nn.Module | Callable[[], nn.Module], inputs: Any, **options: Any
) -> Comparison:
    """Probe twice and compare: does this module give the same bits twice, here?

    Args:
        module: or a function that makes it, called before each probe with the same seed; then the
            initial weights are compared as well.
        options: of `probe`; `mode` is "training" unless it is given.
    Raises:
        as `probe`; TrainingFailed: the function raised.
    """
    options = {"mode": "training"} | options
    first, second = (probe(_made(module, options), inputs, **options) for _ in range(2))
    return compare(first, second)


def _made(module: nn.Module | Callable[[], nn.Module], options: Mapping[str, Any]) -> nn.Module:
    if isinstance(module, nn.Module):
        return module
    with (
        reproducing(options.get("seed", 0), (), threads=options.get("threads")),
        _blaming(lambda: " when it was made"),
    ):
        return module()


# -- one pass -----------------------------------------------------------------


class _Learning:
    """What a pass does after the forward pass."""

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[..., torch.Tensor] | None,
        targets: Any,
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self._loss = loss
        self._targets = () if targets is None else (targets,)

    def loss(self, output: Any) -> torch.Tensor:
        """Return the loss of an output, checked."""
        found = _half_squares(output) if self._loss is None else self._loss(output, *self._targets)
        if not isinstance(found, torch.Tensor) or found.numel() != 1 or not found.requires_grad:
            what = list(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise InvalidInput(
                f"The loss is no single number with a gradient: {what}.",
                hint="loss must return a tensor of one element that depends on a parameter "
                "that requires a gradient.",
            )
        return found


def _half_squares(output: Any) -> torch.Tensor:
    """Return a loss whose gradient with respect to each output is that output."""
    parts = [t for _, t in tensors_in(output) if t.is_floating_point() and t.requires_grad]
    squares = [part.float().square().sum() / 2 for part in parts]
    return torch.stack(squares).sum() if squares else torch.zeros(())


def _pass(
    module: nn.Module,
    inputs: Any,
    paths: Mapping[nn.Module, str],
    digests: Digests,
    learn: _Learning | None,
    buffers: Mapping[str, str],
) -> ProbePass:
    """Run one pass; `buffers` are their hashes before the first one."""
    tracer = Tracer(paths, digests)
    value = None
    for parameter in module.parameters():
        parameter.grad = None
    with tracer.attached(), torch.set_grad_enabled(learn is not None), _blaming(tracer.where):
        args, kwargs = _arguments(inputs)
        output = module(*args, **kwargs)
        if learn:
            loss = learn.loss(output)
            value = digests.add(loss)
            loss.backward()
    learned = named_parameters(module)
    gradients = {path: digests.add(p.grad) for path, p in learned if p.grad is not None}
    optimizer = learn.optimizer if learn else None
    if optimizer:
        with _blaming(lambda: " in the optimizer's step"):
            optimizer.step()
    buffers_after = _buffers(module, digests)
    return ProbePass(
        records=tracer.records(),
        loss=value,
        gradients=gradients,
        parameters_after=_parameters(module, digests) if optimizer else {},
        buffers_after=buffers_after if learn or buffers_after != buffers else {},
    )


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments, copied: a layer may work in place."""
    copied = tree_map_only(
        torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), inputs
    )
    if isinstance(copied, Mapping):
        return (), dict(copied)
    return (tuple(copied) if isinstance(copied, tuple | list) else (copied,)), {}


@contextmanager
def _blaming(where: Callable[[], str]) -> Iterator[None]:
    """Turn whatever the user's code raises into TrainingFailed, with the place where it did."""
    try:
        yield
    except MmdbError:
        raise
    except BaseException as error:
        if stops_the_caller(error):
            raise
        raise TrainingFailed(
            f"The module raised{where()}: {type(error).__name__}: {error}",
            hint="Call the module by hand with the same inputs.",
        ) from error


# -- what is given and what is read -------------------------------------------


def _check(
    module: nn.Module, *, mode: str, passes: int, keep: str, seed: int, threads: int | None
) -> None:
    if mode not in ("inference", "training"):
        raise InvalidOption(f"mode is {show(mode)}.", hint="Pass 'inference' or 'training'.")
    if keep not in ("digests", "tensors"):
        raise InvalidOption(f"keep is {show(keep)}.", hint="Pass 'digests' or 'tensors'.")
    if passes < 1:
        raise InvalidOption(f"passes is {passes}.", hint="Pass 1 or more.")
    if not 0 <= seed < 1 << 63:
        raise InvalidOption(f"seed is {seed}.", hint="Pass 0 to 2**63 - 1.")
    if threads is not None and threads < 1:
        raise InvalidOption(f"threads is {threads}.", hint="Pass 1 or more.")
    for path, tensor in state(module).items():
        if is_lazy(tensor) or tensor.is_meta:
            what = "has no shape yet" if is_lazy(tensor) else "is on the meta device"
            raise InvalidInput(
                f"{path!r} {what}.", hint="Load the weights, or run the module once, first."
            )


def _parameters(module: nn.Module, digests: Digests) -> dict[str, str]:
    return {path: digests.add(tensor) for path, tensor in named_parameters(module)}


def _buffers(module: nn.Module, digests: Digests) -> dict[str, str]:
    return {path: digests.add(tensor) for path, tensor in named_buffers(module)}


def _environment(devices: Iterable[torch.device]) -> str:
    """Return what the bits depend on: what hops record, and the names of accelerators."""
    names = {
        f"{device}: {torch.get_device_module(device).get_device_name(device)}"
        for device in devices
        if device.type != "cpu"
    }
    return ", ".join([environment(), *sorted(names)])
