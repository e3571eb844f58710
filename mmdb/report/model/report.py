"""The report of a model: its facts, and the sections that there is something for."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmdb.db.connection import Connection
from mmdb.messages import bytes_text
from mmdb.report.lineage import section_of
from mmdb.report.model import history, storage, training
from mmdb.report.model.reading import ModelFacts, read_model
from mmdb.report.parts import Fact, Report, Section
from mmdb.report.texts import architecture_text, time_text, value_text

#: What a report of a model consists of, in order; each makes nothing where nothing is to be shown.
SECTIONS: tuple[Callable[[ModelFacts], Section | None], ...] = (
    lambda facts: section_of(facts.lineage),
    history.section,
    history.predictions_section,
    training.section,
    storage.section,
    training.outcome_section,
)


def model_report(connection: Connection, reference: str) -> Report:
    """Return the report of a model's version: `name`, `name@version` or `name@alias`.

    Raises:
        ModelNotFound
    """
    return report_of(read_model(connection, reference), time.time())


def report_of(facts: ModelFacts, made: float) -> Report:
    """Return the report that facts make."""
    sections = (make(facts) for make in SECTIONS)
    return Report(
        kind="model",
        name=f"{facts.model['model']}@{facts.model['version']}",
        made=made,
        facts=tuple(_facts(facts)),
        sections=tuple(section for section in sections if section is not None),
    )


def _facts(facts: ModelFacts) -> list[Fact]:
    model = facts.model
    run, dataset = model["run"], model["dataset"]
    candidate = model["candidate_id"]
    epoch = "" if model["epoch"] is None else f", epoch {model['epoch'] + 1}"
    came = facts.origin and f"{facts.origin['kind']} of {facts.origin['source']}"
    of = "" if candidate is None else f", candidate {candidate}{epoch}"
    wanted = [
        ("approach", "kept as", model["approach"], model["approach"], ""),
        ("parent", "parent", model["parent"], model["parent"], f"model:{model['parent']}"),
        ("origin", "came by", facts.origin and facts.origin["source"], came, ""),
        ("dataset", "dataset", dataset, dataset, f"dataset:{dataset}"),
        ("run", "trained by", run, f"run {run}{of}", f"run:{run}"),
        ("architecture", "architecture", model["architecture"],
         architecture_text(model["architecture"] or ""), ""),
        ("parameters", "parameters", model["parameters"], f"{model['parameters'] or 0:,}", ""),
        ("byte_count", "size", model["byte_count"], bytes_text(model["byte_count"] or 0), ""),
        ("stored_bytes", "stored for it", model["stored_bytes"],
         bytes_text(model["stored_bytes"] or 0), ""),
        ("created", "saved", model["created"], time_text(model["created"]), ""),
        ("dropped", "dropped", model["dropped"], time_text(model["dropped"]), ""),
        ("aliases", "aliases", history.aliases_of(facts), ", ".join(history.aliases_of(facts)), ""),
        ("tags", "tags", {t["key"]: t["value"] for t in facts.tags} or None,
         ", ".join(f"{t['key']}={value_text(t['value'])}" for t in facts.tags), ""),
    ]  # fmt: skip
    return [
        Fact(key=key, label=label, value=value, text=text, entity=entity)
        for key, label, value, text, entity in wanted
        if value not in (None, [])
    ]
