"""docs/search.md names every method, key, pruner and argument, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from mmdb.train.search import METHODS
from mmdb.train.search.methods import LASTING
from mmdb.train.search.search_options import KEYS, PRUNERS, TRIALS, SearchOptions
from mmdb.train.search.search_space import COMPARISONS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "search.md").read_text()


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, heading
    return found[1]


def rows(heading: str) -> dict[str, list[str]]:
    """Return the other cells of a section's tables by the name in the first cell."""
    found = re.findall(r"^\| `(\w+)`[^|]*\|(.*)\|$", section(heading), re.M)
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in found}


def test_every_method_and_key_stands_in_a_table() -> None:
    table = rows("Methods")
    assert list(table)[1 : 1 + len(METHODS)] == list(METHODS)
    assert set(table) - {"method", *METHODS} == {key for keys in KEYS.values() for key in keys}


def test_the_defaults_are_those_of_the_code() -> None:
    table = rows("Methods")
    defaults = SearchOptions(method="asha", sampler="random", trials=None)
    for key in ("startup", "eta", "min_epochs", "population", "interval", "fraction", "resample"):
        assert table[key][1] == str(getattr(defaults, key)), key
    assert [int(n) for n in table["trials"][1].split(";")] == list(TRIALS.values())


def test_each_key_names_the_methods_that_it_goes_with() -> None:
    for key, (methods, *_) in rows("Methods").items():
        named = set(re.findall(r"`(\w+)`", methods)) & set(METHODS)
        if key in METHODS or key == "method" or not named or methods.startswith("all but"):
            continue
        assert named == {name for name in METHODS if key in KEYS[name]}, key


def test_every_pruner_has_its_arguments() -> None:
    table = rows("Pruners")
    table.pop("pruner", None)
    assert {name: re.findall(r"`(\w+)`", cells[-1]) for name, cells in table.items()} == {
        name: list(arguments) for name, arguments in PRUNERS.items()
    }


def test_comparisons_and_what_stays_with_the_state_are_named() -> None:
    assert all(f"`{comparison}`" in section("Spaces") for comparison in COMPARISONS)
    assert all(f"`{name}`" in section("Population-based training") for name in LASTING)
