"""Transfers between models of public libraries: what is carried over, how exactly, how fast.

python -m tests.bench.match.transfers --only resnet

The libraries must be installed beside torch. Models have random weights and statistics, in float64;
their layers are paired by `mmdb.graph.match.alignment`.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import pack
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.transfer import transfer
from tests.bench.match.zoo_models import quiet
from tests.unit.graph.transfer.carried import trained

Make = Callable[[], nn.Module]


def timm(name: str, **options: Any) -> Make:
    """Return what makes a model of timm with ten classes."""
    return lambda: import_module("timm").create_model(name, num_classes=10, **options)


def pytorchcv(name: str) -> Make:
    """Return what makes a model of pytorchcv with ten classes."""
    provider = "pytorchcv.model_provider"
    return lambda: import_module(provider).get_model(name, pretrained=False, num_classes=10)


def language(kind: str, **options: Any) -> Make:
    """Return what makes a causal language model of transformers from its config."""

    def make() -> nn.Module:
        found = import_module("transformers")
        config = found.CONFIG_MAPPING[kind](vocab_size=500, use_cache=False, **options)
        module: nn.Module = found.AutoModelForCausalLM.from_config(config)
        return module

    return make


def gpt2(width: int, heads: int, layers: int) -> Make:
    return language(
        "gpt2", n_embd=width, n_head=heads, n_layer=layers, n_positions=64, eos_token_id=1
    )


def llama(width: int, heads: int, groups: int, layers: int) -> Make:
    return language(
        "llama", hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, head_dim=16, eos_token_id=1,
    )  # fmt: skip


def images(side: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, side, side, generator=generator, dtype=torch.float64)


def tokens() -> Tensor:
    return torch.randint(500, (2, 12), generator=torch.Generator().manual_seed(1))


PAIRS: Mapping[str, tuple[Make, Make, Tensor]] = {
    "resnet18 -> resnet18, 20 classes": (
        timm("resnet18"), lambda: import_module("timm").create_model("resnet18", num_classes=20),
        images(64),
    ),
    "resnet18 -> resnet34": (timm("resnet18"), timm("resnet34"), images(64)),
    "resnet18 -> wide_resnet50_2": (timm("resnet18"), timm("wide_resnet50_2"), images(64)),
    "resnet50 -> wide_resnet50_2": (timm("resnet50"), timm("wide_resnet50_2"), images(64)),
    "resnet50 -> resnet101": (timm("resnet50"), timm("resnet101"), images(64)),
    "resnet34 -> resnet18": (timm("resnet34"), timm("resnet18"), images(64)),
    "resnet20_cifar10 -> wrn20_10": (
        pytorchcv("resnet20_cifar10"), pytorchcv("wrn20_10_1bit_cifar10"), images(32),
    ),
    "resnet20_cifar10 -> resnet56": (
        pytorchcv("resnet20_cifar10"), pytorchcv("resnet56_cifar10"), images(32),
    ),
    "resnet10 -> resnet18": (pytorchcv("resnet10"), pytorchcv("resnet18"), images(224)),
    "resnet18 1/4 -> 1/2 wide": (
        pytorchcv("resnet18_wd4"), pytorchcv("resnet18_wd2"), images(224),
    ),
    "resnet18 3/4 -> 1 wide": (pytorchcv("resnet18_w3d4"), pytorchcv("resnet18"), images(224)),
    "vgg11 -> vgg16": (timm("vgg11"), timm("vgg16"), images(64)),
    "vgg11_bn -> vgg16_bn": (timm("vgg11_bn"), timm("vgg16_bn"), images(64)),
    "mobilenetv2 0.75 -> 1.0": (timm("mobilenetv2_075"), timm("mobilenetv2_100"), images(64)),
    "mobilenetv2 0.5 -> 1.4": (timm("mobilenetv2_050"), timm("mobilenetv2_140"), images(64)),
    "mobilenetv2 1.0 -> 1.0 deeper (110d)": (
        timm("mobilenetv2_100"), timm("mobilenetv2_110d"), images(64),
    ),
    "efficientnet b0 -> b1": (timm("efficientnet_b0"), timm("efficientnet_b1"), images(64)),
    "densenet40 -> densenet100 (cifar10)": (
        pytorchcv("densenet40_k12_cifar10"), pytorchcv("densenet100_k12_cifar10"), images(32),
    ),
    "vit tiny -> small": (
        timm("vit_tiny_patch16_224", img_size=64), timm("vit_small_patch16_224", img_size=64),
        images(64),
    ),
    "vit small -> base": (
        timm("vit_small_patch16_224", img_size=64), timm("vit_base_patch16_224", img_size=64),
        images(64),
    ),
    "vit tiny, 12 -> 18 blocks": (
        timm("vit_tiny_patch16_224", img_size=64),
        timm("vit_tiny_patch16_224", img_size=64, depth=18), images(64),
    ),
    "convnext atto -> femto": (timm("convnext_atto"), timm("convnext_femto"), images(64)),
    "swin tiny -> small": (
        timm("swin_tiny_patch4_window7_224", img_size=112),
        timm("swin_small_patch4_window7_224", img_size=112), images(112),
    ),
    "gpt2 4 -> 6 layers": (gpt2(64, 4, 4), gpt2(64, 4, 6), tokens()),
    "gpt2 64 -> 128 wide": (gpt2(64, 4, 4), gpt2(128, 8, 4), tokens()),
    "gpt2 64 -> 96 wide, 6 layers": (gpt2(64, 4, 4), gpt2(96, 6, 6), tokens()),
    "gpt2 96 -> 64 wide": (gpt2(96, 6, 6), gpt2(64, 4, 4), tokens()),
    "llama 64 -> 96 wide, 6 layers": (llama(64, 4, 2, 4), llama(96, 6, 3, 6), tokens()),
    "llama 64 -> 128 wide": (llama(64, 4, 2, 4), llama(128, 8, 4, 4), tokens()),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the pairs' names")
    parser.add_argument("--reasons", type=int, default=1, help="to print for each pair")
    given = parser.parse_args()
    torch.set_num_threads(1)
    # torchvision's CUDA build does not import beside torch's CPU build without this.
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))
    print(f"{'pair':38s} exact   error  fraction  similar  record s  align s  transfer s")
    for pair, (parent, child, inputs) in PAIRS.items():
        if given.only in pair:
            with quiet():
                show(pair, parent, child, inputs, given.reasons)


def show(pair: str, make_parent: Make, make_child: Make, inputs: Tensor, reasons: int) -> None:
    """Print what a transfer gives."""
    torch.manual_seed(0)
    try:
        parent, child = trained(make_parent()), trained(make_child(), seed=1)
    except Exception as exc:  # the library's code
        print(f"{pair:38s} not built: {type(exc).__name__}: {exc}"[:160], flush=True)
        return
    start = time.perf_counter()
    flows = capture(child, (inputs,)), capture(parent, (inputs,))
    outlines = skeleton_of(flows[0]), skeleton_of(flows[1])
    recorded = time.perf_counter()
    alignment = align(pack(outlines[0]), pack(outlines[1]))
    aligned = time.perf_counter()
    state = parent.state_dict()
    made = transfer(*flows, alignment.pairs, *outlines, state, child.state_dict())
    ended = time.perf_counter()
    child.load_state_dict(dict(made.tensors))
    sizes = {path: one.numel() for path, one in child.named_parameters()}
    fractions = {origin.path: origin.fraction for origin in made.origins}
    carried = sum(fractions[path] * size for path, size in sizes.items()) / sum(sizes.values())
    print(
        f"{pair:38s} {made.exact!s:5s} {error_of(child, parent, inputs):>8s} {carried:8.1%} "
        f"{alignment.score:8.2f} {recorded - start:9.2f} {aligned - recorded:8.2f} "
        f"{ended - aligned:9.2f}",
        flush=True,
    )
    for reason in made.reasons[:reasons]:
        print(f"    {reason}")


def error_of(child: nn.Module, parent: nn.Module, inputs: Tensor) -> str:
    """Return the greatest difference of the outputs, of their root mean square."""
    with torch.no_grad():
        one, other = (_first(module(inputs)) for module in (child, parent))
    if one.shape != other.shape:
        return "shape"
    return f"{float((one - other).abs().max() / other.square().mean().sqrt()):.1e}"


def _first(result: Any) -> Tensor:
    found: Tensor = result if isinstance(result, Tensor) else result[0]
    return found


if __name__ == "__main__":
    main()
