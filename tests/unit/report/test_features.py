"""The section on frozen layers: there where there are any, with what they cost."""

from __future__ import annotations

from mmdb.report import run_sections
from tests.unit.report.rows import facts


def test_a_run_without_frozen_layers_has_no_section() -> None:
    assert run_sections.features_section(facts(name="search")) is None


def test_a_section_adds_up_what_features_cost() -> None:
    row = {
        "feature_id": 4,
        "layer": "layer2",
        "backbone": None,
        "storage": "int8",
        "choice": "stored",
        "reason": "Reading them takes less than computing them.",
        "candidates": 8,
        "hops": 160,
        "byte_count": 3_000_000,
        "compute_s": 2.0,
        "store_s": 0.5,
        "read_s": 0.25,
        "saved_s": 80.0,
    }
    other = row | {"feature_id": 5, "layer": "layer3", "choice": "streamed", "byte_count": 0}
    section = run_sections.features_section(facts(name="search", features=[row, other]))
    assert section is not None
    (table,) = section.tables
    assert "5.5 s" in section.texts[0] and "3 MB" in section.texts[1]
    assert [each["entity"] for each in table.rows] == ["feature:4", "feature:5"]
    assert "of" not in [column.label for column in table.columns]  # a seed's, not a model's
