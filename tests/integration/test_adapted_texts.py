"""Adapters of language models: trained, read by peft and back, and going on with texts."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import mmdb
from tests.integration.test_next_tokens import db as db  # the texts
from tests.integration.test_next_tokens import make

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


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # of peft's own
@pytest.mark.parametrize("name", NETWORKS)
def test_an_adapter_of_a_language_model(db: mmdb.Database, name: str, tmp_path: Path) -> None:
    sizes, layers, config, cls = NETWORKS[name]
    make(db)
    network = {"factory": "transformers", "arguments": {"name": name, **sizes}}
    space = {"space": {"lr": [0.02], "batch_size": [8]}}
    db.create_run("base", dataset="stories", architecture=network, search=space).train(workers=1)
    adapter = {"name": "lora", "rank": 2, "alpha": 4, "layers": layers}
    db.create_run(
        "tuned",
        dataset="stories",
        architecture={"adapted": network, "adapter": adapter},
        search=space,
        epochs=2,
        warm_start="base",
    ).train(workers=1)
    base, tuned = db.recover("base"), db.recover("tuned")
    own, before = tuned.state_dict(), base.state_dict()
    assert all(torch.equal(own[path], before[path]) for path in before)
    assert {p.rpartition(".")[2] for p in own.keys() - before} == {"adapter_a", "adapter_b"}
    assert all(own[path].any() for path in own.keys() - before)
    assert (
        db.evaluate("tuned", "stories")["perplexity"] < db.evaluate("base", "stories")["perplexity"]
    )
    for data in ("stories", "SELECT said FROM story"):
        (found,) = db.compare_models("tuned", "base", data)
        told = [db.evaluate(model, data)["perplexity"] for model in ("tuned", "base")]
        assert [found["a_value"], found["b_value"]] == pytest.approx(told)
        assert (found["metric"], found["better"]) == ("perplexity", "tuned")
        assert found["high"] < 0
    shared = db.recover("tuned", base=base)
    assert all(torch.equal(own[path], tensor) for path, tensor in shared.state_dict().items())
    tied = ("transformer.wte", "model.embed_tokens")[name == "llama"]
    there = shared.get_parameter(f"{tied}.weight")
    assert there.data_ptr() == base.get_parameter(f"{tied}.weight").data_ptr()
    assert (there is shared.get_parameter("lm_head.weight")) == (name == "gpt2")

    db.export_model("tuned", tmp_path / "out", format="peft")
    plain = getattr(library, cls)(getattr(library, config)(**sizes, vocab_size=258))
    plain.load_state_dict(before)
    theirs = peft.PeftModel.from_pretrained(plain, tmp_path / "out").eval()
    x = torch.randint(1, 258, (3, 9))
    with torch.no_grad():
        assert torch.allclose(theirs(x).logits, tuned(x), atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    again = db.import_model(tmp_path / "theirs", "again", parent="base").model
    assert all(torch.equal(own[path], t) for path, t in db.recover(again).state_dict().items())

    prompt = "one 3 t"
    ids = torch.tensor([[byte + 1 for byte in prompt.encode()]])
    more = theirs.generate(input_ids=ids, max_new_tokens=5, do_sample=False, eos_token_id=257)
    found = db.generate("tuned", prompt, max_tokens=5)
    text = bytes(one - 1 for one in more[0, ids.shape[1] :].tolist() if 1 <= one <= 256)
    assert found["generated"] == text.decode(errors="replace")
    assert db.generate(again, prompt, max_tokens=5)["generated"] == found["generated"]
