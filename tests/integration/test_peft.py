"""Adapters as folders of peft: out, in, and read by peft itself."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import mmdb
from mmdb import errors
from mmdb.cli import main
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import initial_module

MLP = "mlp(hidden=[16, 16])"
LORA = {"name": "lora", "rank": 2, "alpha": 8, "layers": ["1", "3"], "train": ["5"]}
SHAPES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "mlp": (MLP, (6,), LORA),
    "cnn": ("cnn(width=4)", (1, 8, 8), {"name": "lora", "rank": 2, "alpha": 3.5}),
}


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        yield database


def saved(db: mmdb.Database, kind: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Save a base and an adapter of it as models "base" and "tuned"; return them."""
    network, shape, adapter = SHAPES[kind]
    how: dict[str, Any] = {"input_shape": shape, "outputs": 3}
    base = initial_module(network, {}, shape, 3, SHIPPED, seed=1).eval()
    db.save("base", base, architecture=network, **how)
    architecture = {"adapted": network, "adapter": adapter}
    tuned = initial_module(architecture, {}, shape, 3, SHIPPED, seed=1).eval()
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in tuned.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))
    db.save("tuned", tuned, architecture=architecture, **how)
    return base, tuned


@pytest.mark.parametrize("kind", SHAPES)
def test_a_folder_comes_back_bit_for_bit(db: mmdb.Database, kind: str, tmp_path: Path) -> None:
    _, tuned = saved(db, kind)
    written = db.export_model("tuned", tmp_path / "out", format="peft")
    assert written.format == "peft"
    own = [p for p in tuned.parameters() if p.requires_grad]
    assert written.bytes < sum(p.nbytes for p in own) + 4_000
    found = db.import_model(tmp_path / "out", "again", parent="base")
    module = db.recover(found.model)
    wanted, given = tuned.state_dict(), module.state_dict()
    assert wanted.keys() == given.keys()
    assert all(torch.equal(wanted[path], given[path]) for path in wanted)
    trained = {path for path, p in tuned.named_parameters() if p.requires_grad}
    assert trained == {path for path, p in module.named_parameters() if p.requires_grad}
    db.export_model(found.model, tmp_path / "twice", format="peft")
    first, second = (
        load_file(tmp_path / n / "adapter_model.safetensors") for n in ("out", "twice")
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", SHAPES)
def test_peft_reads_it_and_mmdb_reads_peft(db: mmdb.Database, kind: str, tmp_path: Path) -> None:
    peft: Any = importlib.import_module("peft")
    base, tuned = saved(db, kind)
    x = torch.randn(5, *SHAPES[kind][1])
    wanted = tuned(x)
    db.export_model("tuned", tmp_path / "out", format="peft")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "out").eval()
    assert torch.allclose(theirs(x), wanted, atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    found = db.import_model(tmp_path / "theirs", "theirs", parent="base")
    assert torch.equal(db.recover(found.model)(x), wanted)


def test_what_is_no_adapter_for_this_base_is_refused(db: mmdb.Database, tmp_path: Path) -> None:
    saved(db, "mlp")
    out = tmp_path / "out"
    db.export_model("tuned", out, format="peft")
    with pytest.raises(errors.UnsupportedContent, match="has no adapter"):
        db.export_model("base", tmp_path / "no", format="peft")
    with pytest.raises(errors.NoParent, match="holds an adapter"):
        db.import_model(out, "x")
    with pytest.raises(errors.InvalidOption, match="has an adapter already"):
        db.import_model(out, "x", parent="tuned")
    other = initial_module(MLP, {}, (6,), 3, SHIPPED, seed=9)
    db.save("other", other, architecture=MLP, input_shape=(6,), outputs=3)
    with pytest.raises(
        errors.ImportMismatch, match=r"is for a base with hash [0-9a-f]{16}; other@1"
    ):
        db.import_model(out, "x", parent="other")
    config = json.loads((out / "adapter_config.json").read_text())
    for changed, error in (
        ({"use_dora": True}, errors.UnsupportedContent),
        ({"peft_type": "IA3"}, errors.UnsupportedContent),
        ({"r": 0}, errors.FileDamaged),
        ({"r": 3}, errors.ModuleMismatch),
    ):
        (out / "adapter_config.json").write_text(json.dumps({**config, **changed}))
        with pytest.raises(error):
            db.import_model(out, "x", parent="base")
    (out / "adapter_config.json").write_text(json.dumps(config))
    whole = (out / "adapter_model.safetensors").read_bytes()
    (out / "adapter_model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(errors.FileDamaged):
        db.import_model(out, "x", parent="base")
    assert not db.sql("SELECT 1 AS one FROM mmdb.model WHERE name = 'x'")


def test_the_commands(
    db: mmdb.Database, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(db, "mlp")
    db.close()
    place = ["--database", database_url]
    assert main(["export", "tuned", str(tmp_path / "out"), "--format", "peft", *place]) == 0
    assert main(["import", str(tmp_path / "out"), "copy", "--parent", "base", *place]) == 0
    assert "copy@1" in capsys.readouterr().out
