"""What people say about models, comparing and dropping them, and garbage collection."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mmdb.server.backend import Backend, exposed, passed_on

_REGISTRY = "mmdb.store.models.registry"
set_alias = passed_on(f"{_REGISTRY}.set_alias")
drop_alias = passed_on(f"{_REGISTRY}.drop_alias")
rollback_alias = passed_on(f"{_REGISTRY}.rollback_alias")
tag_model = passed_on(f"{_REGISTRY}.tag_model")
log_metric = passed_on(f"{_REGISTRY}.log_metric", "dataset")
note_model = passed_on(f"{_REGISTRY}.note_model")
drop_model = passed_on(f"{_REGISTRY}.drop_model")
gc = passed_on("mmdb.store.garbage.gc", "dry_run", "grace")


@exposed
def model_diff(backend: Backend, a: str, b: str, norms: bool) -> list[dict[str, Any]]:
    """Return the tensors in which two models differ; recipes are followed."""
    from mmdb.store.models import diff  # loads torch
    from mmdb.train.replay.recipe_replay import load_weights

    found = diff.model_diff(backend.connection, a, b, norms=norms, recover=load_weights)
    return [asdict(each) for each in found]
