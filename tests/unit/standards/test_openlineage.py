"""From rows to OpenLineage events, without a database; and the sinks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from jsonschema import ValidationError

from mmdb.errors import InvalidOption, SinkFailed
from mmdb.standards.http_service import post_events, write_events
from mmdb.standards.identity import DatabaseIdentity
from mmdb.standards.openlineage_events import Facts, events
from mmdb.standards.openlineage_facets import attempt_at, attempts
from tests.openlineage_classes import check

START = datetime(2026, 1, 1, tzinfo=UTC)
REFUSALS = (AssertionError, AttributeError, TypeError, ValueError, ValidationError)
PLACE = DatabaseIdentity("postgres://db:5432", "shop", UUID(int=7))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def source(
    column: str | None,
    output: str | None,
    table: str = "orders",
    via: str | None = None,
    owner: int = 1,
) -> dict[str, Any]:
    return {
        "owner_id": owner,
        "schema_name": "public" if table else None,
        "table_name": table,
        "column_name": column,
        "output_name": output,
        "via": via,
    }


def run_event(event: str, seconds: float, run_id: int = 1) -> dict[str, Any]:
    return {"run_id": run_id, "happened_at": at(seconds), "event": event, "workers": 2}


def model(model_id: int, name: str, **columns: Any) -> dict[str, Any]:
    return {
        "model_id": model_id,
        "name": name,
        "version": 1,
        "approach": "snapshot",
        "parent_id": None,
        "dataset_id": None,
        "run_id": None,
        "candidate": None,
        "epoch": None,
        "metrics": "{}",
        "weights_hash": bytes([model_id]) * 32,
        "tensor_count": 4,
        "byte_count": 1024,
        "save_s": 0.5,
        "created_at": at(100 + model_id),
        "parameter_count": 256,
        "warm_parent_id": None,
        "origin": None,
        "source": None,
    } | columns


#: A column of the dataset, with what it becomes.
AMOUNT = {
    "name": "amount",
    "kind": "numeric",
    "transform": "robust",
    "meaning": "less the median 1.5",
}


def facts(**parts: Any) -> Facts:
    """Return a dataset, a run that was killed and resumed, and models of each kind."""
    dataset = {
        "dataset_id": 1,
        "name": "buyers",
        "query": "SELECT …",
        "label": "y",
        "row_count": 300,
        "byte_count": 6000,
        "content_hash": b"\x01\x02",
        "created_at": START,
    }
    run = {
        "run_id": 1,
        "name": "search",
        "dataset_id": 1,
        "architecture": '"mlp"',
        "search": "{}",
        "epochs": 2,
        "strategy": "mop",
        "warm_start": "auto",
        "metric": None,
        "seed": 0,
        "created_at": at(1),
        "candidates": 2,
        "failed": 1,
        "error": "lost",
    }
    models = [
        model(1, "old", origin="import", source="/zoo/old.safetensors"),
        model(2, "search", run_id=1, dataset_id=1, candidate=0, epoch=1, metrics='{"rmse": 0.5}'),
        model(3, "search-next", parent_id=2, dataset_id=1, approach="update"),
        model(4, "twin", origin="pull", source="postgresql://ann@other/zoo", warm_parent_id=1),
    ]
    prediction = {
        "prediction_id": 5,
        "model_id": 3,
        "schema_name": "public",
        "table_name": "guesses",
        "key_name": "id",
        "query": "SELECT id, amount FROM orders",
        "row_count": 10,
        "seconds": 2.0,
        "predicted_at": at(300),
    }
    whole: dict[str, Any] = {
        "datasets": {1: dataset},
        "dataset_columns": {1: [AMOUNT]},
        "dataset_sources": {
            1: [
                source("amount", "amount", via="shop.paid"),
                source("status", None),
                source(None, "mystery", table=""),
                source(None, None, table="counted"),
            ]
        },
        "runs": [run],
        "run_events": {
            1: [run_event("started", 10), run_event("started", 20), run_event("finished", 30)]
        },
        "warm_parents": {1: [{"run_id": 1, "parent_id": 1}]},
        "models": {m["model_id"]: m for m in models},
        "predictions": [prediction],
        "prediction_sources": {5: [source("id", "id"), source("amount", "amount")]},
    }
    return Facts(**(whole | parts))


def hop(part: int, seconds: float) -> dict[str, Any]:
    return {
        "candidate": 0,
        "epoch": 0,
        "partition": part,
        "role": "train",
        "row_count": 10,
        "steps": 2,
        "loss": float("nan"),
        "objective": None,
        "worker": "w",
        "started_at": at(seconds),
        "finished_at": at(seconds + 1),
    }


def hops(run_id: int) -> Sequence[dict[str, Any]]:
    return [hop(0, 9), hop(1, 12), hop(2, 25)]  # the first by a clock that is behind


def jobs(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["eventType"], event["job"]["name"]) for event in found]


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [dataset["name"] for dataset in datasets]


def test_every_kind_of_event_is_one_of_openlineage() -> None:
    found = list(events(facts(), PLACE, hops))
    assert {event["job"]["facets"]["jobType"]["jobType"] for event in found} == {
        "DATASET",
        "TRAINING",
        "HOP",
        "MODEL",
        "PREDICTION",
    }
    assert {event["eventType"] for event in found} == {"START", "COMPLETE", "ABORT"}
    for event in found:
        check(event)


SPOILS: list[Callable[[dict[str, Any]], object]] = [
    lambda e: e["run"].update(runId="7"),
    lambda e: e.update(eventType="DONE"),
    lambda e: e["job"].pop("name"),
    lambda e: e["job"]["facets"]["sql"].update(text="SELECT"),
    lambda e: e["job"]["facets"]["sql"].update(_schemaURL="urn:x/SQLJobFacet"),
    lambda e: e["outputs"][0]["facets"]["columnLineage"].update(fields=[]),
    lambda e: e["outputs"][0]["facets"]["mmdb_unresolved"].update(count="1"),
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_the_check_refuses_what_is_no_event(spoil: Callable[[dict[str, Any]], object]) -> None:
    event = json.loads(json.dumps(list(events(facts(), PLACE))[1]))
    check(event)
    spoil(event)
    with pytest.raises(REFUSALS):
        check(event)


def test_a_dataset_has_the_lineage_of_its_columns() -> None:
    started, done = list(events(facts(runs=()), PLACE))[:2]
    assert jobs([started, done]) == [("START", "dataset.buyers"), ("COMPLETE", "dataset.buyers")]
    assert started["run"]["runId"] == done["run"]["runId"] and started["outputs"] == []
    assert names(done["inputs"]) == ["shop.public.orders", "shop.public.counted"]
    (written,) = done["outputs"]
    assert written["name"] == "shop.mmdb.dataset.buyers"
    assert written["facets"]["version"]["datasetVersion"] == "0102"
    lineage = written["facets"]["columnLineage"]
    (field,) = lineage["fields"]["amount"]["inputFields"]
    assert (field["name"], field["field"]) == ("shop.public.orders", "amount")
    words = "through shop.paid; robust: less the median 1.5"
    how = {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": words}
    assert field["transformations"] == [how]
    (whole,) = lineage["dataset"]
    assert (whole["field"], whole["transformations"]) == ("status", [{"type": "INDIRECT"}])
    missing = written["facets"]["mmdb_unresolved"]
    assert (missing["count"], missing["outputs"]) == (1, ["mystery"])  # not the table that counts


def test_a_run_that_was_killed_and_resumed_is_two() -> None:
    found = [e for e in events(facts(), PLACE) if e["job"]["name"] == "run.search"]
    assert [e["eventType"] for e in found] == ["START", "ABORT", "START", "COMPLETE"]
    ids = [e["run"]["runId"] for e in found]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert names(found[0]["inputs"]) == ["shop.mmdb.dataset.buyers", "shop.mmdb.model.old.1"]
    assert names(found[1]["outputs"]) == [] and names(found[3]["outputs"]) == [
        "shop.mmdb.model.search.1"
    ]
    about = found[3]["outputs"][0]["facets"]["mmdb_model"]
    assert about["metrics"] == {"rmse": 0.5} and about["candidate"] == 0


def test_a_run_whose_candidates_all_failed_has_failed() -> None:
    whole = facts()
    run = dict(whole.runs[0]) | {"failed": 2}
    found = [e for e in events(facts(runs=[run]), PLACE) if e["job"]["name"] == "run.search"]
    assert found[-1]["eventType"] == "FAIL"
    assert found[-1]["run"]["facets"]["errorMessage"]["message"] == "lost"
    check(found[-1])


def test_hops_stand_below_the_attempt_that_did_them() -> None:
    found = list(events(facts(), PLACE, hops))
    runs = [e for e in found if e["job"]["name"] == "run.search"]
    below = [e for e in found if e["job"]["name"] == "run.search.hop"]
    first, second = runs[0]["run"]["runId"], runs[2]["run"]["runId"]
    parents = [
        e["run"]["facets"]["parent"]["run"]["runId"] for e in below if e["eventType"] == "START"
    ]
    assert parents == [first, first, second]
    assert found.index(runs[0]) < found.index(below[0]) < found.index(runs[1])
    assert "loss" not in below[0]["run"]["facets"]["mmdb_hop"]  # JSON has no NaN
    assert len({e["run"]["runId"] for e in below}) == 3


def test_models_outside_of_runs_come_from_files_databases_and_models() -> None:
    found = {
        e["job"]["name"]: e
        for e in events(facts(), PLACE)
        if e["job"]["name"].startswith("model.") and e["eventType"] == "COMPLETE"
    }
    assert set(found) == {"model.old", "model.search-next", "model.twin"}
    (file,) = found["model.old"]["inputs"]
    assert (file["namespace"], file["name"]) == ("file", "/zoo/old.safetensors")
    assert names(found["model.search-next"]["inputs"]) == [
        "shop.mmdb.model.search.1",
        "shop.mmdb.dataset.buyers",
    ]
    warm, other = found["model.twin"]["inputs"]
    assert warm["name"] == "shop.mmdb.model.old.1"
    assert other["namespace"] == "postgresql://ann@other/zoo"


def test_predictions_lead_from_tables_and_a_model_to_a_table() -> None:
    done = list(events(facts(), PLACE))[-1]
    assert names(done["inputs"]) == ["shop.public.orders", "shop.mmdb.model.search-next.1"]
    (written,) = done["outputs"]
    assert written["name"] == "shop.public.guesses"
    fields = written["facets"]["columnLineage"]["fields"]
    assert {name: f["inputFields"][0]["field"] for name, f in fields.items()} == {
        "id": "id",
        "prediction": "amount",
    }


def test_of_one_run_there_is_nothing_else() -> None:
    found = list(events(facts(of_one_run=True, predictions=()), PLACE))
    assert {name for _, name in jobs(found)} == {"dataset.buyers", "run.search"}


def test_a_run_that_goes_on_has_no_end_yet() -> None:
    (attempt,) = attempts([run_event("started", 10)], all_failed=False)
    assert attempt.end is None
    (killed,) = attempts([run_event("started", 1), run_event("interrupted", 2)], all_failed=False)
    assert killed.end == "ABORT"
    assert attempts([run_event("finished", 1)], all_failed=True) == []
    assert attempt_at([attempt, killed], at(0)) == 0


# -- sinks ------------------------------------------------------------------------------------


def test_a_file_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.ndjson", tmp_path / "b.ndjson"
    count = write_events(events(facts(), PLACE, hops), first)
    assert write_events(events(facts(), PLACE, hops), second) == count
    assert first.read_bytes() == second.read_bytes()
    lines = first.read_text().splitlines()
    assert [json.loads(line) for line in lines] == list(events(facts(), PLACE, hops))
    assert len(lines) == count


class Collector(ThreadingHTTPServer):
    """Takes events after it has answered with some errors."""

    def __init__(self, *answers: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.seen: list[tuple[str, str | None]] = []
        self.taken: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, self.headers["Authorization"]))
        status = self.server.answers.pop(0) if self.server.answers else 201
        if status < 300:
            self.server.taken.append(json.loads(body))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"no such thing" if status >= 300 else b"")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmdb.standards.http_service._DELAYS", (0.0, 0.0, 0.0, 0.0))


@pytest.fixture
def collector(request: pytest.FixtureRequest, quick: None) -> Iterator[Collector]:
    with Collector(*getattr(request, "param", ())) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("collector", [(503, 429)], indirect=True)
def test_a_collector_that_fails_twice_gets_every_event_once(collector: Collector) -> None:
    wanted = list(events(facts(), PLACE))
    assert post_events(wanted, collector.url, "secret") == len(wanted)
    assert collector.taken == wanted
    assert collector.seen[0] == ("/api/v1/lineage", "Bearer secret")
    assert len(collector.seen) == len(wanted) + 2


@pytest.mark.parametrize("collector", [(200, 422)], indirect=True)
def test_what_a_collector_refuses_is_not_repeated(collector: Collector) -> None:
    with pytest.raises(SinkFailed, match=r"answered with 422: no such thing 1 events were taken"):
        post_events(events(facts(), PLACE), f"{collector.url}/lineage?key=secret")
    assert [path for path, _ in collector.seen] == ["/lineage?key=secret"] * 2


@pytest.mark.parametrize("collector", [(500,) * 9], indirect=True)
def test_tries_are_bounded(collector: Collector) -> None:
    with pytest.raises(SinkFailed, match="answered with 500"):
        post_events(events(facts(), PLACE), collector.url)
    assert len(collector.seen) == 5


def test_nobody_listens(quick: None) -> None:
    with Collector() as stopped:
        url = stopped.url
    with pytest.raises(SinkFailed, match="does not answer"):
        post_events(events(facts(), PLACE), url)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "collector", "http://", "http://[", ""])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="no address of a service"):
        post_events([], url)
