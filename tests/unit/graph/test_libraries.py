"""Networks of installed libraries: as the library's own, and nothing else is loaded for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, cast

import pytest
import torch

from mmdb.errors import FactoryFailed, FactoryNotAllowed
from mmdb.graph.spec.build import architecture_of, build, check_output, initial_module
from mmdb.graph.spec.parse import LIBRARIES, parse

FACTORIES = {name: f"mmdb.graph.libraries:{name}" for name in LIBRARIES}
PICTURE, TOKENS = (3, 64, 64), (12,)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 90}
BERT = {"factory": "transformers:bert", "arguments": {**SMALL, "intermediate_size": 64}}


def made(architecture: Any, shape: tuple[int, ...], outputs: int = 5) -> torch.nn.Module:
    return initial_module(architecture, {}, shape, outputs, FACTORIES, seed=3).eval()


def test_networks_of_transformers_are_its_own() -> None:
    transformers: Any = importlib.import_module("transformers")
    found = made(BERT, TOKENS)
    check_output(found, TOKENS, 5, "int64")
    arguments: Any = {**SMALL, "intermediate_size": 64, "num_labels": 5}
    own = transformers.BertForSequenceClassification(transformers.BertConfig(**arguments)).eval()
    own.load_state_dict(found.state_dict())
    x = torch.randint(1, 90, (4, *TOKENS))
    x[1, 7:] = 0  # as texts that are shorter are filled up
    with torch.no_grad():
        assert torch.equal(own(x, attention_mask=(x != 0).long()).logits, found(x))
        alone = own(x[1:2, :7]).logits
    assert torch.allclose(alone, found(x)[1:2], atol=1e-6)


def test_a_network_may_compute_its_sizes_by_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the RegNets of torchvision do: such a one cannot be built without memory."""
    transformers: Any = importlib.import_module("transformers")
    cls = transformers.BertForSequenceClassification
    plain = cls.__init__

    def sized(self: Any, config: Any) -> None:
        config.intermediate_size = int(torch.arange(64, 65).tolist()[0])
        plain(self, config)

    monkeypatch.setattr(cls, "__init__", sized)
    check_output(made(BERT, TOKENS), TOKENS, 5, "int64")
    assert architecture_of(BERT, {}, TOKENS, 5, FACTORIES).nodes
    with pytest.raises(FactoryFailed, match="the limit is 1,000"):
        build(BERT, {}, TOKENS, 5, FACTORIES, max_parameters=1000)


def test_a_class_of_transformers_may_be_named() -> None:
    architecture = {**BERT, "arguments": {**BERT["arguments"], "model": "BertModel"}}  # type: ignore[dict-item]
    found = made(architecture, TOKENS, 32)
    assert found(torch.ones(2, *TOKENS, dtype=torch.int64)).shape == (2, 32)
    vit = "transformers:vit(hidden_size=32, num_hidden_layers=1, num_attention_heads=4)"
    check_output(made(vit, (1, 32, 32)), (1, 32, 32), 5)


def test_a_library_in_front_of_a_colon_is_a_factory() -> None:
    wanted = {"factory": "timm", "arguments": {"name": "resnet18", "drop_rate": 0.1}}
    assert parse("timm:resnet18(drop_rate=0.1)") == wanted
    assert parse({"factory": "timm:resnet18", "arguments": {"drop_rate": 0.1}}) == wanted
    assert parse("torchvision:vgg11")["arguments"] == {"name": "vgg11"}
    for text in ("os:system", "timm.models:create_model", "subprocess:run(args=1)"):
        with pytest.raises(FactoryNotAllowed):
            parse(text)


REFUSED: list[tuple[str, Mapping[str, object], tuple[int, ...], str]] = [
    ("transformers", {"name": "brt"}, TOKENS, "no model_type 'brt'"),
    ("transformers", {"config": {"auto_map": {"AutoModel": "x.Y"}}}, TOKENS, "no model_type"),
    ("transformers", {"name": "bert", "model": "pipeline"}, TOKENS, "no class 'pipeline'"),
    ("transformers", {"name": "bert", "model": "BertTokenizer"}, TOKENS, "no class"),
    ("transformers", {"name": "clap"}, TOKENS, "no SequenceClassification"),
]


@pytest.mark.parametrize(("factory", "arguments", "shape", "said"), REFUSED)
def test_what_cannot_be_built_says_why(
    factory: str, arguments: Mapping[str, object], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(FactoryFailed, match=said):
        build(factory, arguments, shape, 5, FACTORIES)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)  # importing it then fails as without it
    with pytest.raises(FactoryFailed, match="timm cannot be imported") as raised:
        build("timm:resnet18", {}, PICTURE, 5, FACTORIES)
    assert "mmdb-learn[pretrained]" in str(raised.value.hint)


def test_a_network_that_is_too_large_takes_no_memory() -> None:
    wide = {"hidden_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 64}
    with pytest.raises(FactoryFailed, match=r"makes [\d,]+ parameters; the limit is 1,000,000,000"):
        build("transformers:llama", wide, TOKENS, 5, FACTORIES)


def test_what_a_configuration_would_load_is_left_out() -> None:
    config = {
        "model_type": "bert", **SMALL, "intermediate_size": 64,
        "auto_map": {"AutoModel": "hostile--modeling.Model"},
        "_attn_implementation": "somebody/kernel",
        "quantization_config": {"quant_method": "bitsandbytes"},
    }  # fmt: skip
    found = made({"factory": "transformers", "arguments": {"config": config}}, TOKENS)
    assert not hasattr(cast("Any", found).config, "auto_map")
    check_output(found, TOKENS, 5, "int64")
