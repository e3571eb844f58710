"""The language model looks back only; the corpus is the same on every call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bench.warm.language import ALPHABET, FOLDED, Shape, corpus, network
from tests.bench.warm.training import built

SMALL = Shape(layers=2, width=16, heads=2, context=8)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for k in range(10):
        (tmp_path / f"m{k}.py").write_text(f"A{k} = 'é'\n" * 10)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "a.py").write_text("secret")
    return tmp_path


def decoded(characters: torch.Tensor, alphabet: str = ALPHABET) -> str:
    return "".join(alphabet[code - 1] if code else "?" for code in characters.tolist())


def test_files_go_to_the_parts_in_turns(sources: Path) -> None:
    parts = {part: decoded(codes) for part, codes in corpus(10**6, folder=sources).items()}
    named = {part: {k for k in range(10) if f"A{k} =" in text} for part, text in parts.items()}
    assert named == {"parent": {0, 2, 5, 7}, "child": {1, 3, 6, 8}, "held_out": {4, 9}}
    assert "secret" not in "".join(parts.values())
    assert parts["held_out"].startswith("A4 = '??'\nA4")  # two bytes of UTF-8


def test_the_budget_ends_the_corpus_after_the_file_that_passes_it(sources: Path) -> None:
    size = (sources / "m0.py").stat().st_size
    parts = corpus(4 * size + 1, folder=sources)
    assert sum(len(codes) for codes in parts.values()) == 5 * size


def test_a_smaller_alphabet_folds_the_case(sources: Path) -> None:
    parts = corpus(10**6, FOLDED, sources)
    assert decoded(parts["parent"], FOLDED).startswith("a? = ")


def test_the_alphabet_has_every_character_once() -> None:
    assert len(set(ALPHABET)) == len(ALPHABET) == 96
    assert len(set(FOLDED)) == len(FOLDED)


def test_a_prediction_depends_on_earlier_characters_alone() -> None:
    module = built(lambda: network(SMALL), 0).eval()
    x = torch.randint(0, 97, (1, 8), generator=torch.Generator().manual_seed(1))
    y = x.clone()
    y[0, 5] = (y[0, 5] + 1) % 97
    before, after = module(x), module(y)
    assert before.shape == (1, 8, 97)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_a_tied_head_is_the_embedding() -> None:
    tied = network(Shape(1, 16, 2, tied=True))
    assert tied.get_parameter("head.weight") is tied.get_parameter("token.weight")
