"""The calls of MLflow's REST API that an export needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from mmdb.errors import SinkFailed, SinkRefused
from mmdb.standards.http_service import HttpService

_API = "/api/2.0/mlflow"
_PAGE = 1000
#: MLflow takes 1,000 metrics, 100 params and 100 tags at once, and 1,000 of all together.
_METRICS, _PARAMS, _TAGS = 800, 100, 100
_NOT_THERE = "RESOURCE_DOES_NOT_EXIST"

Item = Mapping[str, Any]


class Tracking:
    """An MLflow tracking server. Its tags are lists of keys and values; here they are dicts."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def find_experiment(self, name: str) -> dict[str, Any] | None:
        """Return an experiment, a deleted one too."""
        try:
            answer = self._service.get(f"{_API}/experiments/get-by-name", experiment_name=name)
        except SinkRefused as error:
            if error.code == _NOT_THERE:
                return None
            raise
        with self._understood():
            found = dict(answer["experiment"])
            return {
                "experiment_id": str(found["experiment_id"]),
                "lifecycle_stage": found.get("lifecycle_stage"),
                "tags": untagged(found.get("tags", ())),
            }

    def create_experiment(self, name: str, tags: Mapping[str, str]) -> str:
        """Return the id of a new experiment."""
        body = {"name": name, "tags": tagged(tags)}
        answer = self._post("experiments/create", body, again=False)
        with self._understood():
            return str(answer["experiment_id"])

    def runs(self, experiment_id: str) -> Iterator[dict[str, Any]]:
        """Yield id and tags of an experiment's runs."""
        body = {"experiment_ids": [experiment_id], "max_results": _PAGE}
        token: str | None = None
        while token != "":
            answer = self._post("runs/search", body | ({"page_token": token} if token else {}))
            with self._understood():
                found = [
                    {"run_id": run["info"]["run_id"], "tags": untagged(run["data"].get("tags", ()))}
                    for run in answer.get("runs", ())
                ]
            yield from found
            token = self._next(answer, token)

    def create_run(self, experiment_id: str, name: str, start: int, tags: Mapping[str, str]) -> str:
        """Return the id of a new run, which began at `start` ms."""
        body = {"experiment_id": experiment_id, "run_name": name, "start_time": start}
        body |= {"tags": tagged(tags)}
        answer = self._post("runs/create", body, again=False)
        with self._understood():
            return str(answer["run"]["info"]["run_id"])

    def log(
        self, run_id: str, metrics: Sequence[Item], params: Sequence[Item], tags: Mapping[str, str]
    ) -> None:
        """Add metrics, params and tags to a run; what it has already stays one."""
        parts = zip_longest(
            _chunks(metrics, _METRICS), _chunks(params, _PARAMS), _chunks(tagged(tags), _TAGS)
        )
        for some_metrics, some_params, some_tags in parts:
            body = {"run_id": run_id, "metrics": some_metrics or [], "params": some_params or []}
            self._post("runs/log-batch", body | {"tags": some_tags or []})

    def update_run(self, run_id: str, status: str, end: int | None) -> None:
        """Say how a run stands."""
        body = {"run_id": run_id, "status": status}
        self._post("runs/update", body if end is None else body | {"end_time": end})

    def versions(self, name: str) -> dict[str, str]:
        """Return the versions of a registered model, made if needed, by the tag `mmdb.model`."""
        try:
            self._service.get(f"{_API}/registered-models/get", name=name)
        except SinkRefused as error:
            if error.code != _NOT_THERE:
                raise
            self._post("registered-models/create", {"name": name}, again=False)
            return {}
        found: dict[str, str] = {}
        quote = '"' if "'" in name else "'"
        asked = {"filter": f"name={quote}{name}{quote}", "max_results": str(_PAGE)}
        token: str | None = None
        while token != "":
            page = self._service.get(
                f"{_API}/model-versions/search", **asked, **({"page_token": token} if token else {})
            )
            with self._understood():
                for version in page.get("model_versions", ()):
                    reference = untagged(version.get("tags", ())).get("mmdb.model")
                    if reference is not None:
                        found[reference] = str(version["version"])
            token = self._next(page, token)
        return found

    def create_version(
        self, name: str, source: str, run_id: str | None, tags: Mapping[str, str]
    ) -> str:
        """Return the number of a new version of a registered model."""
        body: dict[str, Any] = {"name": name, "source": source, "tags": tagged(tags)}
        if run_id is not None:
            body["run_id"] = run_id
        answer = self._post("model-versions/create", body, again=False)
        with self._understood():
            return str(answer["model_version"]["version"])

    def tag_version(self, name: str, version: str, key: str, value: str) -> None:
        """Set a tag of a version."""
        body = {"name": name, "version": version, "key": key, "value": value}
        self._post("model-versions/set-tag", body)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Let an alias name a version.

        Raises:
            SinkRefused: MLflow allows no alias of that name.
        """
        self._post("registered-models/alias", {"name": name, "alias": alias, "version": version})

    def _post(self, path: str, body: Item, *, again: bool = True) -> dict[str, Any]:
        return self._service.post(f"{_API}/{path}", body, again=again)

    def _next(self, answer: Item, token: str | None) -> str:
        """Return where the next page begins; empty after the last one."""
        following = str(answer.get("next_page_token") or "")
        if following and following == token:
            raise SinkFailed(f"{self._service.url} repeats a page for ever.")
        return following

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turn what an answer lacks into SinkFailed."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SinkFailed(
                f"{self._service.url} does not answer as MLflow does.",
                hint="See that it is the address of an MLflow tracking server.",
            ) from error


def tagged(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as MLflow takes them.

    >>> tagged({"a": "1"})
    [{'key': 'a', 'value': '1'}]
    """
    return [{"key": key, "value": value} for key, value in tags.items()]


def untagged(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return tags as a dict; MLflow leaves an empty value out.

    >>> untagged([{"key": "a", "value": "1"}, {"key": "b"}])
    {'a': '1', 'b': ''}
    """
    return {tag["key"]: tag.get("value", "") for tag in tags}


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
