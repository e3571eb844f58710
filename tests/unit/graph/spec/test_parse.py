from __future__ import annotations

import json

import pytest

from mmdb.errors import ArchitectureError, FactoryFailed, InvalidLayerGraph
from mmdb.graph.spec.parse import canonical, parse


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("mlp", {}),
        ("  mlp  ", {}),
        ("mlp()", {}),
        ("mlp(hidden=[64, 32], dropout=0.1)", {"hidden": [64, 32], "dropout": 0.1}),
        ("mlp(hidden=(64, 32),)", {"hidden": [64, 32]}),
        ("mlp (\n  activation='relu'\n)", {"activation": "relu"}),
        ("mlp(batch_norm=true, depth=null)", {"batch_norm": True, "depth": None}),
        ('{"factory": "mlp"}', {}),
        ('{"factory": "mlp", "arguments": {"depth": 2}}', {"depth": 2}),
        ({"factory": "mlp", "arguments": {"hidden": (3, 4)}}, {"hidden": [3, 4]}),
    ],
)
def test_every_form_of_a_factory_is_read_alike(
    written: str | dict[str, object], read: dict[str, object]
) -> None:
    assert parse(written) == {"factory": "mlp", "arguments": read}
    assert parse(parse(written)) == parse(written)


def test_a_factory_may_have_any_registered_name() -> None:
    assert parse("my-team/net.v2(depth=3)") == {
        "factory": "my-team/net.v2",
        "arguments": {"depth": 3},
    }


def test_the_canonical_bytes_do_not_depend_on_the_form_or_order() -> None:
    written = ["mlp(a=1, b='é')", '{"arguments": {"b": "\\u00e9", "a": 1}, "factory": "mlp"}']
    assert {canonical(form) for form in written} == {
        '{"arguments":{"a":1,"b":"é"},"factory":"mlp"}'.encode()
    }


def test_a_backbone_with_a_head_is_read_with_its_parts() -> None:
    read = parse({"backbone": "resnet(width=8)", "cut": "3", "head": "linear"})
    assert read == {
        "backbone": {"factory": "resnet", "arguments": {"width": 8}},
        "cut": "3",
        "pool": "auto",
        "head": {"factory": "linear", "arguments": {}},
    }
    assert parse(read) == read
    assert canonical(json.dumps(read)) == canonical(read)


DEEP = 100_000
HOSTILE_TEXT = [
    "",
    " ",
    "(",
    "()",
    "mlp(",
    "mlp)",
    "mlp(3)",
    "mlp(**{'a': 1})",
    "mlp(*[1])",
    "mlp(a=1)(b=2)",
    "mlp(a=1) + 2",
    "mlp(a=1); import os",
    "mlp(a=1, a=2)",
    "mlp(a=__import__('os').system('true'))",
    "mlp(a=(lambda: 1)())",
    "mlp(a=[x for x in (1,)])",
    "mlp(a=1j)",
    "mlp(a={1, 2})",
    "mlp(a=b'x')",
    "mlp(a=...)",
    "mlp(a=1e999)",
    "mlp(a={[]: 1})",
    "mlp(a='\\ud800')",
    "mlp(a=\0)",
    "mlp(a=" + "9" * 5000 + ")",
    "mlp(a=0x" + "f" * 9000 + ")",
    "mlp(a=" + "[" * 4000 + "]" * 4000 + ")",
    "mlp(a=" + "-" * 9000 + "1)",
    "mlp(a=" + "1+" * 4000 + "1)",
    "mlp(a=" + "x" * DEEP + ")",
    "x" * 201,
    "m lp",
    "mlp\0",
    "mlp; DROP TABLE model",
    "os.system('true')",
    "{",
    "{}",
    "{'factory': 'mlp'}",
    '{"factory": 3}',
    '{"factory": "m lp"}',
    '{"factory": "mlp", "arguments": [1]}',
    '{"factory": "mlp", "extra": 1}',
    '{"factory": "mlp", "arguments": {"a": NaN}}',
    '{"factory": "mlp", "arguments": {"a": 1e999}}',
    '{"factory": "mlp", "arguments": {"a": "\\ud800"}}',
    '{"layers": [], "extra": 1}',
    '{"layers": ' + "[" * DEEP + "]" * DEEP + "}",
    '{"layers": ' + "9" * 5000 + "}",
    '{"a":' * DEEP + "1" + "}" * DEEP,
    "[1]",
    "null",
]


@pytest.mark.parametrize("written", HOSTILE_TEXT, ids=lambda text: repr(text[:30]))
def test_hostile_text_is_an_architecture_error_of_one_line(written: str) -> None:
    if written == "null":  # a name like any other: the registry decides
        assert parse(written) == {"factory": "null", "arguments": {}}
        return
    with pytest.raises(ArchitectureError) as failed:
        parse(written)
    assert len(failed.value.message) < 500
    assert type(failed.value) in (FactoryFailed, InvalidLayerGraph)


@pytest.mark.parametrize(
    "written",
    [
        None,
        3,
        ["mlp"],
        {},
        {"layers": {1, 2}},
        {"layers": [{"name": object()}]},
        {"layers": [], 3: 4},
        {"factory": "mlp", "arguments": {3: 4}},
        {"factory": "mlp", "arguments": None},
        {"factory": None},
    ],
)
def test_a_value_that_json_cannot_hold_is_an_architecture_error(written: object) -> None:
    with pytest.raises(ArchitectureError):
        parse(written)  # type: ignore[arg-type]


def test_a_message_stays_short_whatever_it_shows() -> None:
    wide: list[object] = ["x" * 100] * 9
    for _ in range(9):
        wide = [wide] * 9
    with pytest.raises(ArchitectureError) as failed:
        parse({"factory": wide})
    assert len(failed.value.message) < 500


def test_a_mapping_that_holds_itself_is_an_architecture_error() -> None:
    loop: dict[str, object] = {"layers": []}
    loop["output"] = loop
    with pytest.raises(InvalidLayerGraph):
        parse(loop)
