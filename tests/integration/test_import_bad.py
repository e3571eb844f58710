"""Folders that are broken or of ill will: each is an error that says so, and nothing is stored."""

from __future__ import annotations

import importlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mmdb
from mmdb import errors

TINY: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50,
        "intermediate_size": 16, "max_position_embeddings": 16,
    },
    "GPT2LMHeadModel": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50},
    "LlamaForCausalLM": {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50,
        "intermediate_size": 16, "num_key_value_heads": 1,
    },
    "ViTForImageClassification": {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
        "intermediate_size": 16, "patch_size": 8,
    },
    "ResNetForImageClassification": {
        "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
    },
    "ConvNextForImageClassification": {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]},
}  # fmt: skip


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder of each kind, as the library writes it; tests change a copy."""
    transformers: Any = importlib.import_module("transformers")
    found = {}
    for kind, given in TINY.items():
        own = getattr(transformers, kind)
        found[kind] = tmp_path_factory.mktemp(kind)
        own(own.config_class(**given)).save_pretrained(found[kind])
    return found


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of BERT's folder."""
    return Path(shutil.copytree(folders["BertForSequenceClassification"], tmp_path / "bert"))


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        yield database


@pytest.fixture
def duckdb() -> Iterator[mmdb.Database]:
    """Yield a database in memory, for what is found before one is asked."""
    with mmdb.connect("duckdb://") as database:
        yield database


def stored(db: mmdb.Database) -> list[int]:
    """Return how much there is of what an import stores."""
    names = ("model", "tensor", "manifest", "definition", "model_tag", "architecture")
    return [db.sql(f"SELECT count(*) AS n FROM mmdb.{name}")[0]["n"] for name in names]


def change(folder: Path, **given: Any) -> None:
    """Write other values into config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **given}))


def _sharded(folder: Path) -> dict[str, str]:
    """Cut the weights into two shards; return which tensor is where."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, paths in parts.items():
        save_file({path: tensors[path] for path in paths}, folder / shard)
    places = {path: shard for shard, paths in parts.items() for path in paths}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return places


def _missing_shard(folder: Path) -> None:
    _sharded(folder)
    (folder / "b.safetensors").unlink()


def _missing_tensor(folder: Path) -> None:
    places = _sharded(folder)
    places["encoder.more"] = "a.safetensors"
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def _cut_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def _linked(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        target = folder.parent / "elsewhere"
        target.write_text('{"secret": 1}')
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return make


def _config(text: str | bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        content = text if isinstance(text, bytes) else text.encode()
        (folder / "config.json").write_bytes(content)

    return make


BROKEN: dict[str, tuple[Callable[[Path], None], type[errors.MmdbError], str]] = {
    "a missing shard": (_missing_shard, errors.FileNotRead, "lacks its file b.safetensors"),
    "a missing tensor": (_missing_tensor, errors.FileDamaged, "the shard lacks 'encoder.more'"),
    "a file cut short": (_cut, errors.FileDamaged, "model.safetensors"),
    "a header cut short": (_cut_header, errors.FileDamaged, "model.safetensors"),
    "a config that leads out": (_linked("config.json"), errors.UnsafeFile, "outside of its folder"),
    "a preprocessor that leads out": (
        _linked("preprocessor_config.json"), errors.UnsafeFile, "outside of its folder"),
    "words of mmdb's that lead out": (
        _linked("mmdb.json"), errors.UnsafeFile, "outside of its folder"),
    "weights that lead out": (
        _linked("model.safetensors"), errors.UnsafeFile, "outside of its folder"),
    "no JSON": (_config("{hello"), errors.FileDamaged, "config.json is not JSON"),
    "no text": (_config(b"\xff\xfe\x00{"), errors.FileDamaged, "config.json is not JSON"),
    "a list": (_config("[]"), errors.FileDamaged, "does not hold an object"),
    "a number of many digits": (_config('{"a": ' + "9" * 5000 + "}"), errors.FileDamaged, "JSON"),
    "a deep object": (
        _config('{"a":' * 200 + "1" + "}" * 200), errors.FileDamaged, "nested more than 100"),
    "an abyss": (_config('{"a":' * 10**6), errors.FileDamaged, "not JSON"),
    "a huge file": (
        _config(json.dumps({"a": "x" * 10_000_001})), errors.FileDamaged, "larger than 10,000,000"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_folder_says_what_is_wrong(duckdb: mmdb.Database, folder: Path, what: str) -> None:
    make, error, says = BROKEN[what]
    make(folder)
    before = stored(duckdb)
    with pytest.raises(error, match=says):
        duckdb.import_model(folder, "x")
    assert stored(duckdb) == before


@pytest.fixture
def texts(db: mmdb.Database) -> None:
    """Make dataset 'texts', whose rows are tokens."""
    db.sql(
        "CREATE TABLE t AS SELECT i % 2 AS y, 'text ' || i AS s FROM generate_series(1, 9) g (i)"
    )
    tokenize = {"s": {"function": "bytes", "length": 8}}
    options = {"tokenize": tokenize, "task": "classification"}
    db.create_dataset("texts", "SELECT s, y FROM t", label="y", options=options)


@pytest.mark.usefixtures("texts")
def test_shapes_that_do_not_fit_are_named_with_both(db: mmdb.Database, folder: Path) -> None:
    change(folder, intermediate_size=24)
    before = stored(db)
    with pytest.raises(errors.ModuleMismatch) as raised:
        db.import_model(folder, "x", dataset="texts")
    said = str(raised.value)
    assert "bert.encoder.layer.0.intermediate.dense.weight" in said
    assert "(24, 16)" in said and "(16, 16)" in said
    assert stored(db) == before
    note = db.import_model(folder, "x").notes[-1]
    assert "data alone" in note and "(24, 16)" in note


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hidden_size": 20_000, "intermediate_size": 80_000, "num_hidden_layers": 3}, "14,"),
        ({"vocab_size": 10**15}, "parameters; the limit is 1,000,000,000"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000; 2,000 is the most"),
    ],
)
def test_a_network_that_is_too_large_is_refused_with_the_figure(
    db: mmdb.Database, folder: Path, given: dict[str, int], says: str
) -> None:
    change(folder, **given)
    before = stored(db)
    with pytest.raises(errors.FactoryFailed, match=says):
        db.import_model(folder, "x", dataset="texts")
    assert stored(db) == before


def test_a_network_beyond_the_memory_is_refused_with_the_figure(
    duckdb: mmdb.Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmdb.memory.call_bytes", lambda: 1000)
    note = duckdb.import_model(folder, "x").notes[-1]
    assert "bytes of memory; this call may take 1,000" in note
    with pytest.raises(errors.OutOfMemory, match="this call may take 1,000"):
        duckdb.import_model(folder, "x", architecture="linear", input_shape=[400], outputs=9)


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 7.5, 10**9, 10**30, "", "x", "\x00", "\ud800", [], [1], [0, -1],
    ["x", None], {}, {"a": {"b": []}}, {"0": None}, float("nan"), float("inf"), [10**9] * 3,
    [1] * 5000, "os.system", "eager", "../../etc/passwd",
)  # fmt: skip
ALWAYS = ("model_type", "architectures", "id2label", "image_size", "num_channels", "auto_map",
          "torch_dtype", "dtype", "quantization_config", "num_labels", "problem_type",
          "pad_token_id", "text_config", "_attn_implementation", "tie_word_embeddings")  # fmt: skip


@pytest.mark.parametrize("kind", TINY)
def test_each_config_is_a_model_or_an_error_of_mmdb(
    duckdb: mmdb.Database, folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(folders[kind], tmp_path / "net"))
    plain = json.loads((folder / "config.json").read_text())
    drawn = random.Random(kind)
    keys = sorted({*plain, *ALWAYS})
    for number in range(25):
        changed = dict(plain)
        for key in drawn.sample(keys, drawn.choice((1, 1, 2))):
            changed[key] = drawn.choice(ODD)
        check_import(duckdb, folder, changed, f"fuzz/{number}")
    for key, value in plain.items():  # how often, how wide: none of it is built
        if type(value) is int or isinstance(value, list):
            large = [10**9] * len(value) if isinstance(value, list) else 10**9
            check_import(duckdb, folder, {**plain, key: large}, f"large/{key}")


def test_what_databases_do_not_hold_is_no_traceback(db: mmdb.Database, folder: Path) -> None:
    plain = json.loads((folder / "config.json").read_text())
    for number, odd in enumerate(one for one in ODD if not isinstance(one, int)):
        check_import(db, folder, {**plain, "unheard_of": odd}, f"x/{number}")


def check_import(db: mmdb.Database, folder: Path, config: dict[str, Any], name: str) -> None:
    """Import a folder with some config.json: it is kept, or nothing of it and it is said why."""
    (folder / "config.json").write_text(json.dumps(config))
    before = stored(db)
    try:
        found = db.import_model(folder, name)
    except errors.MmdbError:
        assert stored(db) == before
    else:
        assert found.tensors > 0
        notes = " ".join(found.notes)
        assert "Traceback" not in notes and len(notes) < 4000
    assert torch.get_default_dtype() is torch.float32
