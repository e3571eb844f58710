"""The section on groups: how many there are, how the metric lies over them, and the worst."""

from __future__ import annotations

from mmdb.report.group_charts import groups_section
from mmdb.report.subject_reports import report_of_model, report_of_run
from tests.unit.report.rows import BEGIN, GROUPS, facts, model_facts


def test_a_model_without_groups_has_no_section() -> None:
    assert groups_section(()) is None
    assert "groups" not in {section.key for section in report_of_run(facts(), BEGIN).sections}


def test_a_section_says_how_many_groups_there_are_and_which_do_worst() -> None:
    section = groups_section(GROUPS)
    assert section is not None
    assert section.texts == (
        "2,500 values of shop have a network each. Of 2,400 of them rmse is known: 0.125 to 1.5, "
        "its median 0.375, of half of them 0.25 to 0.5.",
    )
    (table,) = section.tables
    assert [row["value"] for row in table.rows] == [1.5, 1.25, 1.0]
    assert [row["group_value"] for row in table.rows][1:] == ["NULL", "7"]
    (chart,) = section.charts
    assert chart.title == "Rmse of the groups that do worst"


def test_where_nothing_is_held_out_it_is_the_loss_of_the_train_rows() -> None:
    given = {"held_out_rows": None, "held_out_loss": None, "metric": "loss of the train rows"}
    section = groups_section([{**row, **given} for row in GROUPS])
    assert section is not None
    labels = [column.label for column in section.tables[0].columns]
    assert labels == ["shop", "loss of the train rows", "train rows", "train loss"]


def test_reports_of_runs_and_of_models_have_it() -> None:
    for report in (
        report_of_run(facts(groups=GROUPS), BEGIN), report_of_model(model_facts(), BEGIN)
    ):  # fmt: skip
        assert "groups" in {section.key for section in report.sections}
