"""Tokenizers out of a tokenizer.json: registered as data, and equal to the library's own."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.decoding import Decoding
from mmdb.data.tokenize import Tokenizer
from mmdb.data.tokenizer_json import read_tokenizer, target_of
from tests.integration.test_import_config import written

tokenizers: Any = importlib.import_module("tokenizers")
WORDS = [
    "night",
    "day",
    "good",
    "bad",
    "film",
    "Straße",
    "日本",
    "don't",
    "  ",
    "42",
    "🙂",
    "naïve",
]


def word_pieces(size: int = 60, *, pads: bool = True) -> str:
    """Return the text of a tokenizer.json such as BERT's, whose pad id is not 0."""
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=specials, show_progress=False
    )
    made.train_from_iterator(texts(400), trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    if pads:  # as save_pretrained leaves them behind
        made.enable_padding(pad_id=3, pad_token="[PAD]", length=9)
        made.enable_truncation(5)
    return str(made.to_str())


def byte_pairs(size: int = 300) -> str:
    """Return the text of a tokenizer.json such as GPT-2's."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(texts(400), trainer)
    return str(made.to_str())


def texts(count: int, seed: int = 1) -> list[str]:
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(0, 12))) for _ in range(count)]


def quoted(text: str) -> str:
    return text.replace("'", "''")


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql("CREATE TABLE review (id int, said text, y text)")
        rows = ", ".join(
            f"({place}, '{quoted(text)}', '{('hated', 'liked')[place % 2]}')"
            for place, text in enumerate(texts(40, seed=2))
        )
        database.sql(f"INSERT INTO review VALUES {rows}")
        yield database


def make(db: mmdb.Database, function: str = "pieces", name: str = "reviews") -> bytes:
    options = {"tokenize": {"said": {"function": function, "length": 12}}}
    query = "SELECT said, y FROM review"
    return db.create_dataset(name, query, label="y", options=options).content_hash


@pytest.mark.parametrize("text", [word_pieces(), word_pieces(pads=False), byte_pairs()])
@pytest.mark.parametrize("length", [3, 7, 30])
def test_ids_are_those_of_the_library(text: str, length: int) -> None:
    library = tokenizers.Tokenizer.from_str(text)
    pad = library.token_to_id("[PAD]") or 0
    library.enable_truncation(length)
    library.enable_padding(length=length, pad_id=pad)
    own = read_tokenizer("own", text)
    assert own.pad == pad
    assert own.vocabulary == library.get_vocab_size()
    for one in (*texts(200, seed=length), "", "\n", "x" * 500):
        (ids,) = own.encode([one], length=length)
        assert [*ids, *[pad] * (length - len(ids))] == library.encode(one).ids


def test_a_registered_text_is_kept_as_data_and_is_part_of_the_hash(db: mmdb.Database) -> None:
    text = word_pieces()
    db.register_function("pieces", text, "tokenizer")
    rows = db.sql("SELECT target, definition FROM mmdb.function") if _is_duck(db) else []
    assert all((r["target"], r["definition"]) == ("tokenizer.json", text) for r in rows)
    with pytest.raises(errors.AlreadyExists):
        db.register_function("pieces", text, "tokenizer")
    first = make(db)
    assert find_decoding(db, "reviews").inputs[0].tokenizer == Tokenizer(
        function="pieces", length=12, vocabulary=60, pad=3, target=target_of(text)
    )
    db.register_function("others", word_pieces(61), "tokenizer")
    assert make(db, "others", "again") != first


def find_decoding(db: mmdb.Database, name: str) -> Decoding:
    return find_dataset(db.connection, name).decoding


def _is_duck(db: mmdb.Database) -> bool:
    return db.connection.engine == "duckdb"


def test_an_imported_classifier_predicts_raw_texts(db: mmdb.Database, tmp_path: Path) -> None:
    text = word_pieces()
    own = written(
        tmp_path, "BertForSequenceClassification", num_labels=2, vocab_size=60, pad_token_id=3
    )
    (tmp_path / "tokenizer.json").write_text(text)
    db.register_function("pieces", text, "tokenizer")
    make(db)
    assert db.import_model(tmp_path, "bert", dataset="reviews").notes == ()
    library = tokenizers.Tokenizer.from_str(text)
    library.enable_truncation(12)
    library.enable_padding(length=12, pad_id=3, pad_token="[PAD]")
    for said in texts(5, seed=9):
        found = library.encode(said)
        ids, mask = torch.tensor([found.ids]), torch.tensor([found.attention_mask])
        with torch.no_grad():
            wanted = own(ids, attention_mask=mask).logits.softmax(1)[0]
        assert db.predict("bert", {"said": said}) == pytest.approx(wanted.tolist(), abs=1e-6)
    db.export_model("bert", tmp_path / "again")
    assert (tmp_path / "again" / "tokenizer.json").read_text() == text


def test_an_import_registers_what_is_in_the_folder(db: mmdb.Database, tmp_path: Path) -> None:
    written(tmp_path, "BertForSequenceClassification")
    (tmp_path / "tokenizer.json").write_text(word_pieces())
    db.import_model(tmp_path, "bert")
    db.import_model(tmp_path, "bert")  # the same one is not kept again
    (tmp_path / "tokenizer.json").write_text(word_pieces(61))
    db.import_model(tmp_path, "bert")
    tags = db.sql("SELECT value FROM mmdb.tag_overview WHERE key = 'huggingface.tokenizer'")
    names = {row["value"] for row in tags}
    assert len(names) == 2
    assert "bert" in names
    (other,) = names - {"bert"}
    make(db, other)


@pytest.mark.parametrize("wrong", ["ids", "function", "large", "text"])
def test_what_does_not_fit_stores_nothing(db: mmdb.Database, tmp_path: Path, wrong: str) -> None:
    written(tmp_path, "BertForSequenceClassification", vocab_size=50 if wrong == "large" else 300)
    text = word_pieces()
    db.register_function("pieces", text, "tokenizer")
    make(db, "bytes" if wrong == "function" else "pieces")
    (tmp_path / "tokenizer.json").write_text(word_pieces(61) if wrong == "ids" else text)
    if wrong == "text":
        (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
        with pytest.raises(errors.FunctionFailed, match=r"no tokenizer\.json"):
            db.register_function("broken", '{"version": "1.0"}', "tokenizer")
    expected = {
        "ids": "is not tokenizer 'pieces'",
        "function": "is not tokenizer 'bytes'",
        "large": r"embedding of 50 tokens; .* has 60",
        "text": r"is no tokenizer\.json",
    }
    with pytest.raises((errors.ImportMismatch, errors.FunctionFailed), match=expected[wrong]):
        db.import_model(tmp_path, "bert", dataset="reviews")
    assert db.sql("SELECT count(*) AS n FROM mmdb.model_overview")[0]["n"] == 0


def test_without_a_dataset_it_is_compared_with_the_network_too(
    db: mmdb.Database, tmp_path: Path
) -> None:
    written(tmp_path, "BertForSequenceClassification", vocab_size=50)
    (tmp_path / "tokenizer.json").write_text(word_pieces())
    with pytest.raises(errors.ImportMismatch, match="embedding of 50 tokens"):
        db.import_model(tmp_path, "bert")
    with pytest.raises(errors.FunctionNotFound):
        make(db)  # nothing was registered


def test_a_missing_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    read_tokenizer.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(errors.FunctionFailed, match="tokenizers cannot be imported") as caught:
        read_tokenizer("pieces", word_pieces())
    assert "mmdb-learn[pretrained]" in (caught.value.hint or "")
