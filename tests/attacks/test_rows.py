"""Rows that were written by hand with ill will: refused when they are read."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from blake3 import blake3

from mmdb import errors
from mmdb.db.postgres import translate_error
from tests.attacks.scene import Scene

#: A count of rows that no other number in a block's bytes equals.
ROWS = 12_345
#: Lengths that a block claims: far beyond its bytes, beyond memory, below nothing.
CLAIMS = {"far more": 10**8, "beyond memory": 2**61, "less than nothing": -5}


def block(claim: int) -> bytes:
    """Return a block of one number and one label a row that claims to have so many rows."""
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(ROWS, np.float32)), 1)
    batch = pa.RecordBatch.from_arrays(
        [values, pa.array(np.zeros(ROWS, np.int64))], names=["numeric", "label"]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data.replace(struct.pack("<q", ROWS), struct.pack("<q", claim))


@contextmanager
def taken_back(session: Any, role: str) -> Iterator[Any]:
    """Yield the owner's session as a role; it leaves nothing, and its errors are mmdb's."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(f"SET LOCAL ROLE {role}")
            yield session
    except psycopg.Error as error:
        raise translate_error(error) from error


def by_owner(session: Any, statement: LiteralString, given: Any = None) -> Any:
    """Return the first value, if any, that a statement of the owner's returns."""
    role = session.execute("SELECT current_user").fetchone()[0]
    session.execute("RESET ROLE")
    done = session.execute(statement, given)
    value = done.fetchone()[0] if done.description else None
    session.execute(f"SET LOCAL ROLE {role}")
    return value


def add(session: Any, table: LiteralString, row: dict[str, Any]) -> Any:
    """Insert a row by hand, generated numbers left out; return its first column."""
    columns = ", ".join(row)
    values = ", ".join(f"%({name})s" for name in row)
    query = f"INSERT INTO mmdb.{table} ({columns}) VALUES ({values}) RETURNING *"
    return by_owner(session, query, row)


def candidate_of(session: Any, run: str) -> int:
    """Return the first candidate of a run."""
    query = "SELECT min(candidate_id) FROM mmdb.candidate JOIN mmdb.run USING (run_id) "
    return int(by_owner(session, query + "WHERE name = %(run)s", {"run": run}))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_block_that_claims_more_rows_than_it_has_ends_a_hop_and_no_server(
    scene: Scene, claim: str
) -> None:
    data = block(CLAIMS[claim])
    with (
        scene.watched(),
        pytest.raises(errors.BlockCorrupt),
        taken_back(scene.session("owner"), "attack_trainer") as session,
    ):
        # Rows of its own: those of `d` are decoded and kept already.
        query = f"SELECT a + {CLAIMS[claim] % 1000} AS a, y FROM points"
        session.execute("SELECT mmdb.create_dataset('fresh', %(q)s, partitions => 1)", {"q": query})
        session.execute("SELECT mmdb.create_run('on-fresh', 'fresh', 'linear')")
        part_id = by_owner(
            session,
            "SELECT part_id FROM mmdb.partition JOIN mmdb.dataset USING (dataset_id) "
            "WHERE name = 'fresh' AND role = 'train'",
        )
        crafted = {"part_id": part_id, "ordinal": 1, "row_count": CLAIMS[claim] % 2**31}
        add(session, "block", crafted | {"digest": blake3(data).digest(), "data": data})
        candidate_id = candidate_of(session, "on-fresh")
        session.execute("SELECT * FROM mmdb.train_hop(%s, %s)", (part_id, candidate_id))


@pytest.mark.parametrize(
    ("architecture", "error"),
    [
        ({"factory": "os:system", "arguments": {"command": "id"}}, errors.FactoryNotAllowed),
        ({"factory": "evil"}, errors.UnknownFactory),
        ({"layers": [{"type": "__import__"}]}, errors.InvalidLayerGraph),
        ([1, 2], errors.MmdbError),
    ],
)
def test_a_run_written_by_hand_builds_no_other_module_than_a_run_that_was_created(
    scene: Scene, architecture: Any, error: type[errors.MmdbError]
) -> None:
    with (
        scene.watched(),
        pytest.raises(error),
        taken_back(scene.session("owner"), "attack_trainer") as session,
    ):
        given = {"dataset_id": scene.ids["dataset"], "architecture": json.dumps(architecture)}
        run = {"name": "by-hand", "search": "{}", "epochs": 1, "strategy": "mop", "options": "{}"}
        run_id = add(session, "run", given | run | {"warm_start": "off", "seed": 0})
        row = {"run_id": run_id, "ordinal": 0, "config": "{}", "seed": 0}
        candidate_id = add(session, "candidate", row)
        session.execute("SELECT * FROM mmdb.train_hop(%s, %s)", (scene.ids["part"], candidate_id))


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\xff" * 64,
        (2**62).to_bytes(8, "little") + b"{}",
        (64).to_bytes(8, "little") + json.dumps({"w": {"dtype": "F32", "shape": [-1],
                                                       "data_offsets": [0, 4]}}).encode(),
        b"\x80\x04cos\nsystem\n(S'id'\ntR.",
    ],
    ids=["nothing", "noise", "a header without end", "a negative shape", "a pickle"],
)  # fmt: skip
def test_a_state_written_by_hand_is_refused_and_not_unpickled(scene: Scene, state: bytes) -> None:
    name = blake3(state).digest()
    with (
        scene.watched(),
        pytest.raises(errors.MmdbError) as raised,
        taken_back(scene.session("owner"), "attack_trainer") as session,
    ):
        candidate_id, part_id = scene.ids["candidate"], scene.ids["part"]
        hop = "SELECT to_jsonb(h) FROM mmdb.hop AS h ORDER BY ordinal LIMIT 1"
        crafted = by_owner(session, hop) | {"candidate_id": candidate_id, "ordinal": 0, "epoch": 0}
        crafted |= {"state_out": f"\\x{name.hex()}", "state_bytes": len(state)}
        by_owner(
            session,
            "INSERT INTO mmdb.hop SELECT (jsonb_populate_record(NULL::mmdb.hop, %s)).*",
            (json.dumps(crafted),),
        )
        place = {"part_id": crafted["part_id"], "candidate_id": candidate_id, "state_hash": name}
        add(session, "checkpoint", place | {"epoch": 0, "byte_count": len(state)})
        add(session, "checkpoint_chunk", place | {"ordinal": 0, "data": state})
        other = by_owner(
            session,
            "SELECT part_id FROM mmdb.partition WHERE dataset_id = %s AND role = 'train' "
            "AND part_id <> %s",
            (scene.ids["dataset"], crafted["part_id"]),
        )
        assert part_id
        session.execute("SELECT * FROM mmdb.train_hop(%s, %s)", (other, candidate_id))
    assert raised.value.sqlstate != errors.DatabaseFailed.sqlstate
