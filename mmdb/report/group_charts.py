"""The section of a model per group: how many there are, how they differ, and which do worst."""

from __future__ import annotations

from mmdb.report.judging_charts import bars_chart
from mmdb.report.parts import Rows, Section, Table, TableColumn, finite, short, telling, value_text


def groups_section(worst: Rows) -> Section | None:
    """Return the section, or None where the model has no groups.

    Args:
        worst: groups, the worst first; each with what is said of all of them.
    """
    if not worst:
        return None
    first = worst[0]
    metric, column = first["metric"], first["column_name"]
    rows = [
        {**row, "group_value": "NULL" if row["group_value"] is None else row["group_value"]}
        for row in worst
    ]
    low, middle, high = (value_text(first[key]) for key in ("low", "middle", "high"))
    least, most = (value_text(first[key]) for key in ("least", "most"))
    text = (
        f"{first['groups']:,} values of {column} have a network each. Of {first['measured']:,} of "
        f"them {metric} is known: {least} to {most}, its median {middle}, of half of them {low} to "
        f"{high}."
    )
    bars = [
        {"name": short(row["group_value"]), "value": value, "low": None, "high": None}
        for row in rows
        if (value := finite(row["value"])) is not None
    ]
    title = f"{metric} of the groups that do worst"
    columns = (
        TableColumn(key="group_value", label=column),
        TableColumn(key="value", label=metric, right=True),
        TableColumn(key="held_out_rows", label="rows held out", right=True),
        TableColumn(key="held_out_loss", label="loss held out", right=True),
        TableColumn(key="train_rows", label="train rows", right=True),
        TableColumn(key="train_loss", label="train loss", right=True),
    )
    told = telling(columns, rows)
    return Section(
        key="groups",
        title="Groups",
        texts=(text,),
        charts=(bars_chart(title[0].upper() + title[1:], metric, bars),) if bars else (),
        tables=(Table(key="groups", title="The groups that do worst", columns=told, rows=rows),),
    )
