"""Events, datasets, attempts and facets of OpenLineage 2-0-2, as dicts that become JSON."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Literal

from mmdb.db.connection import Row
from mmdb.standards.identity import DatabaseIdentity, moment

Part = dict[str, Any]
Kind = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]

VERSION = version("mmdb-learn")
PRODUCER = f"urn:mmdb:{VERSION}"
_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_OWN = "urn:mmdb:openlineage:1-0-0"  # openlineage_facets.json beside this file
#: Version of the schema of each published facet.
_FACETS = {
    "ColumnLineageDatasetFacet": "1-2-0",
    "DatasetVersionDatasetFacet": "1-0-1",
    "DatasourceDatasetFacet": "1-0-1",
    "ErrorMessageRunFacet": "1-0-1",
    "ExecutionParametersRunFacet": "1-0-0",
    "JobTypeJobFacet": "2-0-4",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "ParentRunFacet": "1-2-0",
    "ProcessingEngineRunFacet": "1-1-1",
    "SQLJobFacet": "1-1-0",
    "SchemaDatasetFacet": "1-2-0",
}


def facet(kind: str, **content: Any) -> Part:
    """Return a facet of the standard; None is left out."""
    url = f"{_SPEC}/facets/{_FACETS[kind]}/{kind}.json#/$defs/{kind}"
    return _facet(url, content)


def own_facet(kind: str, **content: Any) -> Part:
    """Return a facet that mmdb defines; None, NaN and infinities are left out."""
    return _facet(f"{_OWN}#/$defs/{kind}", content)


def _facet(url: str, content: Part) -> Part:
    kept = {
        name: value
        for name, value in content.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
    return {"_producer": PRODUCER, "_schemaURL": url, **kept}


def event(
    kind: Kind,
    time: datetime,
    run: Part,
    job: Part,
    inputs: Sequence[Part] = (),
    outputs: Sequence[Part] = (),
) -> Part:
    """Return one event."""
    return {
        "eventType": kind,
        "eventTime": moment(time),
        "producer": PRODUCER,
        "schemaURL": _EVENT,
        "run": run,
        "job": job,
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def run_part(run_id: str, **facets: Part) -> Part:
    """Return a run; every one says that mmdb did it."""
    about = {"version": VERSION, "name": "mmdb", "openlineageAdapterVersion": VERSION}
    engine = facet("ProcessingEngineRunFacet", **about)
    return {"runId": run_id, "facets": {"processing_engine": engine, **facets}}


def job_part(database: DatabaseIdentity, name: str, kind: str, **facets: Part) -> Part:
    """Return a job of a kind: DATASET, TRAINING, HOP, MODEL or PREDICTION."""
    type_ = facet("JobTypeJobFacet", processingType="BATCH", integration="MMDB", jobType=kind)
    return {"namespace": database.jobs, "name": name, "facets": {"jobType": type_, **facets}}


def parameters(values: Part) -> Part:
    """Return what a run was asked for."""
    given = [
        {"key": key, "value": str(value)} for key, value in values.items() if value is not None
    ]
    return facet("ExecutionParametersRunFacet", parameters=given)


def sql(database: DatabaseIdentity, query: str) -> Part:
    """Return the query of a job."""
    dialect = database.namespace.partition(":")[0]
    return facet("SQLJobFacet", query=query, dialect=dialect)


def schema(columns: Iterable[tuple[str, str]]) -> Part:
    """Return columns by name and type, in order."""
    fields = [
        {"name": name, "type": kind, "ordinal_position": place}
        for place, (name, kind) in enumerate(columns, 1)
    ]
    return facet("SchemaDatasetFacet", fields=fields)


def dataset_part(database: DatabaseIdentity, name: str, **facets: Part) -> Part:
    """Return a table or what stands for one, of this database."""
    source = facet("DatasourceDatasetFacet", name=database.namespace, uri=database.namespace)
    facets = {"dataSource": source, **facets}
    return {"namespace": database.namespace, "name": name, "facets": facets}


def tables(database: DatabaseIdentity, sources: Iterable[Row]) -> list[Part]:
    """Return the tables that a query reads, each once."""
    names = dict.fromkeys(
        database.table(source["schema_name"], source["table_name"])
        for source in sources
        if source["table_name"]
    )
    return [dataset_part(database, name) for name in names]


def column_lineage(
    database: DatabaseIdentity,
    feeds: Iterable[tuple[str | None, Row]],
    becomes: Mapping[str | None, str] = MappingProxyType({}),
) -> Part:
    """Return which columns feed which output; with None, which ones decide the rows alone.

    Args:
        becomes: what outputs become by their transforms, in words. Of others mmdb knows whether a
            column reaches them, not how: their transformations have no subtype.
    """
    fields: dict[str, list[Part]] = {}
    whole: list[Part] = []
    for output, source in feeds:
        if source["column_name"] is None or not source["table_name"]:
            continue
        how: Part = {"type": "INDIRECT" if output is None else "DIRECT"}
        words = [f"through {source['via']}"] if source["via"] else []
        if output in becomes:
            how["subtype"] = "TRANSFORMATION"
            words.append(becomes[output])
        if words:
            how["description"] = "; ".join(words)
        entry = {
            "namespace": database.namespace,
            "name": database.table(source["schema_name"], source["table_name"]),
            "field": source["column_name"],
            "transformations": [how],
        }
        (whole if output is None else fields.setdefault(output, [])).append(entry)
    content = {name: {"inputFields": entries} for name, entries in fields.items()}
    return facet("ColumnLineageDatasetFacet", fields=content, dataset=whole or None)


def unresolved(sources: Sequence[Row]) -> dict[str, Part]:
    """Return a facet that counts what columnLineage leaves out, or nothing."""
    missing = [
        s
        for s in sources
        if not s["table_name"] or (s["column_name"] is None and s["output_name"] is not None)
    ]
    if not missing:
        return {}
    outputs = sorted({s["output_name"] for s in missing if s["output_name"] is not None})
    found = own_facet("UnresolvedDatasetFacet", count=len(missing), outputs=outputs)
    return {"mmdb_unresolved": found}


@dataclass(slots=True)
class Attempt:
    """From one start of a run to its end, or to the next start where it was killed."""

    started_at: datetime
    workers: int | None
    ended_at: datetime | None = None
    end: Kind | None = None


def attempts(events: Iterable[Row], *, all_failed: bool) -> list[Attempt]:
    """Return the attempts of a run.

    Args:
        events: of `run_event`, in order of time.
        all_failed: whether none of its candidates is left.
    """
    found: list[Attempt] = []
    for row in events:
        if row["event"] == "started":
            if found and found[-1].end is None:
                found[-1].end, found[-1].ended_at = "ABORT", row["happened_at"]
            found.append(Attempt(row["happened_at"], row["workers"]))
        elif found and found[-1].end is None:
            found[-1].end = "COMPLETE" if row["event"] == "finished" else "ABORT"
            found[-1].ended_at = row["happened_at"]
    if all_failed and found and found[-1].end == "COMPLETE":
        found[-1].end = "FAIL"
    return found


def attempt_at(found: Sequence[Attempt], time: datetime) -> int:
    """Return which attempt something that began at `time` belongs to."""
    return max(0, bisect_right([a.started_at for a in found], time) - 1)
