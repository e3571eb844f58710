"""Apache Superset for real: from an empty one to a dashboard in a browser, as the reader.

A screenshot of the dashboard is kept as `superset.png` in the folder `pictures`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Page

from tests.bi.conftest import Shop
from tests.bi.environments import Service
from tests.bi.superset_server import PASSWORD, USER, Rest, superset

DRAWN_MS, DRAWING_MS = 90_000, 1500  # to wait for a chart; and how long its curves grow
#: A filter as charts hold it.
SEARCH = {
    "expressionType": "SIMPLE",
    "clause": "WHERE",
    "subject": "run",
    "operator": "==",
    "comparator": "search",
}
#: How many colours of which there are more than a few dots a canvas holds.
COLOURS = """canvas => {
    const dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
    const counts = new Map()
    for (let k = 0; k < dots.length; k += 4) {
        const colour = dots.slice(k, k + 4).join()
        counts.set(colour, (counts.get(colour) || 0) + 1)
    }
    return [...counts.values()].filter(count => count > 50).length
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a Superset that knows nothing yet."""
    with superset(tmp_path_factory.mktemp("superset")) as running:
        yield running


@pytest.fixture(scope="module")
def rest(server: Service) -> Rest:
    """Return its REST API, logged in."""
    return Rest(server.url)


@pytest.fixture(scope="module")
def database(rest: Rest, shop: Shop) -> int:
    """Return the id of the database as Superset knows it, connected to by the reader."""
    url = shop.reader_url.replace("postgresql:", "postgresql+psycopg2:", 1)
    made = rest.post("/database/", {"database_name": "shop", "sqlalchemy_uri": url})
    return int(made["id"])


def test_the_container_s_database_is_there(rest: Rest) -> None:
    (database,) = rest.get("/database/?q=(filters:!((col:database_name,opr:eq,value:mmdb)))")[
        "result"
    ]
    assert database["backend"] == "postgresql"


def add_dataset(rest: Rest, database: int, view: str) -> int:
    """Return the id of a dataset upon a view."""
    asked = {"database": database, "schema": "mmdb", "table_name": view}
    return int(rest.post("/dataset/", asked)["id"])


@pytest.fixture(scope="module")
def curves(rest: Rest, database: int) -> int:
    """Return the id of the dataset upon the learning curves."""
    return add_dataset(rest, database, "candidate_progress")


@pytest.fixture(scope="module")
def board(rest: Rest, database: int) -> int:
    """Return the id of the dataset upon the leaderboard."""
    return add_dataset(rest, database, "leaderboard")


def rows(rest: Rest, dataset: int, **query: object) -> Any:
    """Return what a chart of a dataset is drawn from."""
    body = {
        "datasource": {"id": dataset, "type": "table"},
        "queries": [{"row_limit": 1000, "filters": [], **query}],
        "result_format": "json",
        "result_type": "full",
    }
    (answer,) = rest.post("/chart/data", body)["result"]
    assert answer["error"] is None
    return answer["data"]


def mean(column: str) -> dict[str, object]:
    """Return a metric as charts hold it."""
    return {
        "expressionType": "SIMPLE",
        "column": {"column_name": column},
        "aggregate": "AVG",
        "label": column,
    }


def test_columns_come_with_their_comments_and_types(rest: Rest, curves: int, shop: Shop) -> None:
    found = {c["column_name"]: c for c in rest.get(f"/dataset/{curves}")["result"]["columns"]}
    assert found["trained_at"]["is_dttm"] and not found["epoch"]["is_dttm"]
    assert found["objective"]["type"] == "DOUBLE PRECISION"
    with psycopg.connect(shop.owner_url) as connection:
        said = connection.execute(
            "SELECT a.attname::text, col_description(a.attrelid, a.attnum) FROM pg_attribute AS a"
            " WHERE a.attrelid = 'mmdb.candidate_progress'::regclass AND a.attnum > 0"
        ).fetchall()
    assert {name: column["description"] for name, column in found.items()} == dict(said)


def test_charts_are_drawn_from_what_the_views_say(rest: Rest, board: int, shop: Shop) -> None:
    found = rows(
        rest,
        board,
        columns=["run", "rank", "candidate_id", "accuracy"],
        orderby=[["run", True], ["rank", True]],
    )
    with psycopg.connect(shop.reader_url) as connection:
        said = connection.execute(
            "SELECT run, rank, candidate_id, accuracy FROM mmdb.leaderboard ORDER BY run, rank"
        ).fetchall()
    assert [tuple(row.values()) for row in found] == said and len(said) == 5


def test_a_group_by_over_time_is_pushed_down(rest: Rest, curves: int) -> None:
    found = rows(
        rest, curves, columns=["epoch"], metrics=[mean("objective")], orderby=[["epoch", True]]
    )
    assert [row["epoch"] for row in found] == [0, 1, 2]
    assert all(0 < row["objective"] <= 1 for row in found)


def test_sql_lab_is_refused_what_the_reader_may_not(rest: Rest, database: int) -> None:
    for statement in (
        "SELECT count(*) FROM mmdb.tensor_chunk",
        "INSERT INTO mmdb.model_note (model_id, note) VALUES (1, 'x')",
        "CALL mmdb.train('search')",
    ):
        asked = {"database_id": database, "sql": statement, "runAsync": False}
        with pytest.raises(AssertionError, match=r"permission denied|read-only|not allowed|DML"):
            rest.post("/sqllab/execute/", asked)


def add_dashboard(rest: Rest, charts: list[tuple[int, str]]) -> int:
    """Return the id of a dashboard with charts, one in each row of it."""
    cells: dict[str, Any] = {
        "DASHBOARD_VERSION_KEY": "v2",
        "ROOT_ID": {"id": "ROOT_ID", "type": "ROOT", "children": ["GRID_ID"]},
        "GRID_ID": {
            "id": "GRID_ID",
            "type": "GRID",
            "children": [f"ROW-{chart}" for chart, _ in charts],
            "parents": ["ROOT_ID"],
        },
    }
    for chart, name in charts:
        cells[f"ROW-{chart}"] = {
            "id": f"ROW-{chart}",
            "type": "ROW",
            "children": [f"CHART-{chart}"],
            "parents": ["ROOT_ID", "GRID_ID"],
            "meta": {"background": "BACKGROUND_TRANSPARENT"},
        }
        cells[f"CHART-{chart}"] = {
            "id": f"CHART-{chart}",
            "type": "CHART",
            "children": [],
            "parents": ["ROOT_ID", "GRID_ID", f"ROW-{chart}"],
            "meta": {"chartId": chart, "sliceName": name, "width": 12, "height": 50},
        }
    made = rest.post(
        "/dashboard/",
        {"dashboard_title": "Search", "published": True, "position_json": json.dumps(cells)},
    )
    for chart, _ in charts:
        rest.put(f"/chart/{chart}", {"dashboards": [made["id"]]})
    return int(made["id"])


def add_chart(rest: Rest, dataset: int, name: str, kind: str, **form: object) -> tuple[int, str]:
    """Return id and name of a new chart."""
    form |= {"datasource": f"{dataset}__table", "viz_type": kind}
    made = rest.post(
        "/chart/",
        {
            "slice_name": name,
            "viz_type": kind,
            "datasource_id": dataset,
            "datasource_type": "table",
            "params": json.dumps(form),
        },
    )
    return int(made["id"]), name


@pytest.fixture(scope="module")
def dashboard(rest: Rest, board: int, curves: int) -> int:
    """Return the id of a dashboard of a leaderboard and of learning curves."""
    shown = ["run", "rank", "candidate_id", "accuracy", "validation_loss", "epochs", "status"]
    table = add_chart(
        rest,
        board,
        "Leaderboard",
        "table",
        query_mode="raw",
        all_columns=shown,
        order_by_cols=['["rank", true]'],
        row_limit=100,
    )
    lines = add_chart(
        rest,
        curves,
        "Learning curves",
        "echarts_timeseries_line",
        x_axis="epoch",
        metrics=[mean("objective")],
        groupby=["candidate"],
        adhoc_filters=[SEARCH],
        row_limit=1000,
        markerEnabled=True,
        x_axis_sort_asc=True,
        truncateYAxis=True,
        y_axis_bounds=[None, None],
        show_legend=True,
    )
    return add_dashboard(rest, [table, lines])


def log_in(page: Page, url: str) -> None:
    """Fill in Superset's form."""
    page.goto(f"{url}/login/")
    page.locator('[data-test="username-input"]').fill(USER)
    page.locator('[data-test="password-input"]').fill(PASSWORD)
    page.locator('[data-test="login-button"]').click()
    page.wait_for_url("**/superset/welcome/**", timeout=DRAWN_MS)


def test_the_dashboard_is_drawn_in_a_browser(
    server: Service, dashboard: int, browser: Browser, pictures: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1100})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    log_in(page, server.url)
    page.goto(f"{server.url}/superset/dashboard/{dashboard}/")
    charts = page.locator('[data-test="chart-container"], .chart-slice')
    charts.nth(1).wait_for(timeout=DRAWN_MS)
    page.locator("canvas").first.wait_for(timeout=DRAWN_MS)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(DRAWING_MS)
    page.screenshot(path=pictures / "superset.png")
    assert page.locator("table tbody tr").count() == 5
    assert "trained" in page.locator("table tbody tr").first.inner_text()
    assert page.get_by_role("alert").count() == 0 and errors == []
    colours = page.locator("canvas").first.evaluate(COLOURS)
    assert colours > 4, "the curves are not there"
