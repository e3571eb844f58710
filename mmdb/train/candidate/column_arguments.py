"""Arguments of an architecture that its dataset knows: what each number of a row is, and scales."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

from mmdb.data.decoding import Column, Decoding
from mmdb.data.transform.transform import FittedTransform
from mmdb.errors import ArchitectureError, FactoryFailed, InvalidOption
from mmdb.graph.spec.factory_call import resolve
from mmdb.graph.spec.parse import parse
from mmdb.messages import show

#: Numbers of a transform that networks embed; others are flags and 0/1 numbers.
_PLAIN = ("missing",)
_LARGEST_DIMENSION = 16


def per_group(architecture: Mapping[str, Any], decoding: Decoding, column: str) -> dict[str, Any]:
    """Return an architecture for each value of a column, which the networks do not see.

    Args:
        architecture: parsed; of one group.
    Raises:
        InvalidOption: the column is no index.
    """
    found = [c for c in decoding.features if c.name == column]
    if not decoding.is_one_input or len(decoding.labels) > 1:
        raise InvalidOption(
            "per is given, and the dataset has several inputs or labels.",
            hint="Make one of one input and one label.",
        )
    if not found:
        raise InvalidOption(
            f"per is {show(column)}, which is no feature of the dataset.",
            hint=f"Its features are {', '.join(c.name for c in decoding.features)}."[:500],
        )
    transform = found[0].transform
    if transform is None or transform.kind != "index" or transform.codes is None:
        shown = json.dumps({"transforms": {column: "index"}})
        raise InvalidOption(
            f"per is {show(column)}, which is no index of values.",
            hint=f"Create the dataset with options => '{shown}'. What is no whole number, boolean "
            "or text is cast to text in its query.",
        )
    (place,) = [span.start for c, span in decoding.spans(decoding.inputs[0]) if c.name == column]
    groups = {"per": column, "groups": transform.codes, "place": place}
    return parse({**groups, "network": architecture})


def with_columns(
    architecture: Mapping[str, Any],
    decoding: Decoding,
    factories: Mapping[str, str],
    *,
    without: str | None = None,
) -> dict[str, Any]:
    """Return an architecture with the arguments that its dataset knows, where its factory has them.

    Args:
        architecture: parsed. A layer graph, or a backbone with a head, stays as it is.
        without: a column that it does not see.
    Raises:
        FactoryFailed: a row has codes, and the factory has no argument `columns`.
    """
    if "network" in architecture:
        inner = with_columns(
            architecture["network"], decoding, factories, without=architecture["per"]
        )
        return {**architecture, "network": inner}
    if "adapted" in architecture:
        inner = with_columns(architecture["adapted"], decoding, factories, without=without)
        return {**architecture, "adapted": inner}
    if "mean" in architecture:
        members = [
            with_columns(one, decoding, factories, without=without) for one in architecture["mean"]
        ]
        return {**architecture, "mean": members}
    name = str(architecture.get("factory", ""))
    runs = runs_of(decoding, without=without) if decoding.is_one_input else []
    features = [c for c in decoding.features if c.name != without]
    coded = [c.name for c in features if c.transform and c.transform.codes]
    takes: Mapping[str, Any] = {}
    if name in factories:
        try:
            takes = inspect.signature(resolve(factories[name])).parameters
        except (ArchitectureError, TypeError, ValueError):
            pass  # it is built later on, and answers for it then
    if coded and not (name in factories and "columns" in takes and decoding.is_one_input):
        raise FactoryFailed(
            f"column {coded[0]!r} is a code of categories, which this architecture cannot embed",
            hint="Use tabular, mlp or linear, a factory with an argument `columns`, or create the "
            f'dataset with transforms {{"{coded[0]}": "one_hot"}}.',
        )
    given = dict(architecture.get("arguments", {}))
    found: dict[str, Any] = {}
    is_mixed = any(run[0] != "number" for run in runs)
    if "columns" in takes and "columns" not in given and (coded or (is_mixed and name not in _ONE)):
        found["columns"] = runs
    scale = decoding.labels[0].scale
    if "scale" in takes and "scale" not in given and scale is not None and len(decoding.labels) < 2:
        found["scale"] = list(scale)
    is_class = len(decoding.labels) < 2 and decoding.task == "classification"
    if "averages" in takes and "averages" not in given and is_class:
        found["averages"] = "probabilities"
    if "causal" in takes and "causal" not in given and decoding.task == "next_token":
        found["causal"] = True
    return {**architecture, "arguments": {**given, **found}} if found else dict(architecture)


#: Factories to which all numbers are alike.
_ONE = ("linear", "mlp")


def runs_of(decoding: Decoding, *, without: str | None = None) -> list[list[str | int]]:
    """Return what the numbers of a row of the only input are; see `mmdb.graph.tabular.Columns`.

    Args:
        without: a column that is left out.
    """
    runs: list[list[str | int]] = []
    for column, _ in decoding.spans(decoding.inputs[0]):
        for run in _runs(column) if column.name != without else ():
            if runs and runs[-1][0] == run[0] and run[0] in ("number", "plain"):
                runs[-1][1] = int(runs[-1][1]) + int(run[1])
            else:
                runs.append(run)
    return runs


def _runs(column: Column) -> Iterator[list[str | int]]:
    given = column.transform
    if given is None:
        yield ["number" if column.kind == "numeric" else "plain", column.decoded_width]
    elif given.kind == "picture":
        yield ["picture", *given.statistics["shape"]]
    elif given.kind == "words":
        yield ["words", len(given.names), int(given.codes or 0), _dimension(given)]
    elif given.codes is not None:
        yield ["code", given.codes, _dimension(given)]
    elif given.kind == "one_hot":
        yield ["plain", len(given.names)]
    else:
        for name in given.names:
            yield ["plain" if name in _PLAIN else "number", 1]


def _dimension(given: FittedTransform) -> int:
    asked = given.parameters.get("dimension")
    return int(asked) if asked else min(_LARGEST_DIMENSION, 4 + (given.codes or 0) // 8)
