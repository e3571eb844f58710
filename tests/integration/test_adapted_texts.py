"""Adapters of language models: trained, read by peft and back, and going on with texts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mmdb
from tests.copies import Copies
from tests.integration.test_next_tokens import fill, make
from tests.integration.test_strategies import train_all

library: Any = importlib.import_module("transformers")
peft: Any = importlib.import_module("peft")
LLAMA = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24
}  # fmt: skip
NETWORKS: dict[str, tuple[dict[str, Any], list[str], str, str]] = {
    "gpt2": (
        {"n_embd": 16, "n_layer": 2, "n_head": 2},
        ["*.attn.c_attn", "*.attn.c_proj"],
        "GPT2Config",
        "GPT2LMHeadModel",
    ),
    "llama": (LLAMA, ["*.q_proj", "*.v_proj"], "LlamaConfig", "LlamaForCausalLM"),
}


SPACE = {"space": {"lr": [0.02], "batch_size": [8]}}


def train(db: mmdb.Database) -> None:
    """Train networks on texts, then adapters of them."""
    fill(db)
    make(db)
    for name, (sizes, _, _, _) in NETWORKS.items():
        network = {"factory": "transformers", "arguments": {"name": name, **sizes}}
        db.create_run(f"base_{name}", dataset="stories", architecture=network, search=SPACE)
    train_all(db, [f"base_{name}" for name in NETWORKS], workers=1)
    for name, (sizes, layers, _, _) in NETWORKS.items():
        network = {"factory": "transformers", "arguments": {"name": name, **sizes}}
        adapter = {"name": "lora", "rank": 2, "alpha": 4, "layers": layers}
        db.create_run(
            f"tuned_{name}",
            dataset="stories",
            architecture={"adapted": network, "adapter": adapter},
            search=SPACE,
            epochs=2,
            warm_start=f"base_{name}",
        )
    train_all(db, [f"tuned_{name}" for name in NETWORKS], workers=1)


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, copies: Copies) -> Iterator[mmdb.Database]:
    """Yield a database with the networks and their adapters; each test has names of its own."""
    with copies.open(request.param, train) as database:
        yield database


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # of peft's own
@pytest.mark.parametrize("name", NETWORKS)
def test_an_adapter_of_a_language_model(db: mmdb.Database, name: str, tmp_path: Path) -> None:
    sizes, _, config, cls = NETWORKS[name]
    of_base, of_tuned, of_again = (f"{what}_{name}" for what in ("base", "tuned", "again"))
    base, tuned = db.recover(of_base), db.recover(of_tuned)
    own, before = tuned.state_dict(), base.state_dict()
    assert all(torch.equal(own[path], before[path]) for path in before)
    assert {p.rpartition(".")[2] for p in own.keys() - before} == {"adapter_a", "adapter_b"}
    assert all(own[path].any() for path in own.keys() - before)
    reached = [db.evaluate(model, "stories")["perplexity"] for model in (of_tuned, of_base)]
    assert reached[0] < reached[1]
    for data in ("stories", "SELECT said FROM story"):
        (found,) = db.compare_models(of_tuned, of_base, data)
        told = [db.evaluate(model, data)["perplexity"] for model in (of_tuned, of_base)]
        assert [found["a_value"], found["b_value"]] == pytest.approx(told)
        assert (found["metric"], found["better"]) == ("perplexity", of_tuned)
        assert found["high"] < 0
    shared = db.recover(of_tuned, base=base)
    assert all(torch.equal(own[path], tensor) for path, tensor in shared.state_dict().items())
    tied = ("transformer.wte", "model.embed_tokens")[name == "llama"]
    there = shared.get_parameter(f"{tied}.weight")
    assert there.data_ptr() == base.get_parameter(f"{tied}.weight").data_ptr()
    assert (there is shared.get_parameter("lm_head.weight")) == (name == "gpt2")

    db.export_model(of_tuned, tmp_path / "out", format="peft")
    plain = getattr(library, cls)(getattr(library, config)(**sizes, vocab_size=258))
    plain.load_state_dict(before)
    theirs = peft.PeftModel.from_pretrained(plain, tmp_path / "out").eval()
    x = torch.randint(1, 258, (3, 9))
    with torch.no_grad():
        assert torch.allclose(theirs(x).logits, tuned(x), atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    again = db.import_model(tmp_path / "theirs", of_again, parent=of_base).model
    assert all(torch.equal(own[path], t) for path, t in db.recover(again).state_dict().items())

    prompt = "one 3 t"
    ids = torch.tensor([[byte + 1 for byte in prompt.encode()]])
    more = theirs.generate(input_ids=ids, max_new_tokens=5, do_sample=False, eos_token_id=257)
    found = db.generate(of_tuned, prompt, max_tokens=5)
    text = bytes(one - 1 for one in more[0, ids.shape[1] :].tolist() if 1 <= one <= 256)
    assert found["generated"] == text.decode(errors="replace")
    assert db.generate(again, prompt, max_tokens=5)["generated"] == found["generated"]
