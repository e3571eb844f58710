"""What people say about models, comparing and dropping them, and garbage collection.

What loads torch is imported within the calls, which a cancel then ends while it loads.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from mmdb.server.backend import Backend, exposed
from mmdb.store import garbage


@exposed
def set_alias(backend: Backend, model: str, version: int | None, alias: str) -> str:
    """Move an alias; return `name@version`."""
    from mmdb.store.models import registry

    return registry.set_alias(backend.connection, model, version, alias)


@exposed
def drop_alias(backend: Backend, model: str, alias: str) -> str:
    """Take an alias away; return the `name@version` that it was at."""
    from mmdb.store.models import registry

    return registry.drop_alias(backend.connection, model, alias)


@exposed
def tag_model(backend: Backend, model: str, key: str, value: str | None) -> str:
    """Give a model a tag, or take it away; return `name@version`."""
    from mmdb.store.models import registry

    return registry.tag_model(backend.connection, model, key, value)


@exposed
def log_metric(backend: Backend, model: str, metric: str, value: float, dataset: str) -> str:
    """Give a model a metric; return `name@version`."""
    from mmdb.store.models import registry

    return registry.log_metric(backend.connection, model, metric, value, dataset=dataset)


@exposed
def note_model(backend: Backend, model: str, note: str) -> str:
    """Write a note about a model; return `name@version`."""
    from mmdb.store.models import registry

    return registry.note_model(backend.connection, model, note)


@exposed
def model_diff(backend: Backend, a: str, b: str, norms: bool) -> list[dict[str, Any]]:
    """Return the tensors in which two models differ; recipes are followed."""
    from mmdb.store.models import diff
    from mmdb.train.replay.recipe_replay import load_weights

    found = diff.model_diff(backend.connection, a, b, norms=norms, recover=load_weights)
    return [asdict(each) for each in found]


@exposed
def drop_model(backend: Backend, model: str, version: int | None) -> list[dict[str, Any]]:
    """Drop one version of a model; return it with the bytes that `gc` can free."""
    from mmdb.store.models import registry

    return [asdict(registry.drop_model(backend.connection, model, version))]


@exposed
def gc(backend: Backend, dry_run: bool, grace: str | timedelta) -> list[dict[str, Any]]:
    """Collect garbage, or say what would go."""
    return [asdict(f) for f in garbage.gc(backend.connection, dry_run=dry_run, grace=grace)]
