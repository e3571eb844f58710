"""The doctor's look at the server and, on a cluster, at its nodes.

Settings, sessions, disks, vacuum, replicas and archive; whether each partition lies on its node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from mmdb.db.check import SHOWN, Check
from mmdb.db.citus import find_cluster, unspread_hint
from mmdb.db.connection import Row
from mmdb.db.install import installed_engine, is_installed
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load

_Q = load("doctor")
_O = load("operations")

#: Dead rows of a table that a vacuum is overdue for, where they are more than those in use.
DEAD_ROWS = 100_000
#: Transactions since the oldest that is not frozen: the server stops near 2.1 billion.
OLD_TRANSACTIONS = 1_000_000_000
#: Ages of transactions that hold something back.
LONG, LONG_PREPARED = "1 hour", "10 minutes"
#: Bytes of the log that a replica or a slot may be behind.
BEHIND_BYTES = 1 << 30
#: Seconds that a replica may be behind what it has received.
BEHIND_S = 60
#: What a file system should have free: both a share and bytes.
FREE_SHARE, FREE_BYTES = 0.05, 1 << 30
#: Share of the server's sessions that may be in use.
SESSIONS_SHARE = 0.9


def server(connection: PostgresConnection) -> Iterator[Check]:
    """Yield the checks of the server; a login without pg_monitor sees its own sessions alone."""
    (settings,) = connection.rows(_O.read_settings)
    yield _durability(settings)
    yield _vacuum(connection, settings)
    yield _transactions(connection)
    yield _sessions(connection, int(settings["max_connections"]))
    if settings["is_replica"]:
        yield _replica(connection, settings)
    else:
        yield _replicas(connection)
        yield _archive(connection, str(settings["archive_mode"]))
    (role,) = connection.rows(_Q.find_role)
    found = connection.rows(load("install").find_extension)
    if role["is_superuser"] and found and found[0]["installed"]:
        yield _disk(connection)


def _check(name: str, wrong: list[str], detail: str, mend: str) -> Check:
    others = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return Check(
        name=name,
        ok=not wrong,
        detail="; ".join(wrong[:SHOWN]) + others if wrong else detail,
        mend=mend if wrong else "",
    )


def _durability(settings: Row) -> Check:
    off = [name for name in ("fsync", "full_page_writes") if not settings[name]]
    checksums = "with" if settings["data_checksums"] else "without"
    return _check(
        "durability",
        [f"{name} is off" for name in off],
        f"what is committed is on disk, {checksums} checksums of pages",
        "A power cut may lose the whole database: set them to on, and reload the server.",
    )


def _vacuum(connection: PostgresConnection, settings: Row) -> Check:
    wrong = [f"{name} is off" for name in ("autovacuum", "track_counts") if not settings[name]]
    for row in connection.rows(_O.find_unvacuumed, dead_rows=DEAD_ROWS):
        if row["is_off"]:
            wrong.append(f"mmdb.{row['table_name']} has autovacuum_enabled off")
        else:
            wrong.append(f"mmdb.{row['table_name']} has {row['dead_rows']:,} dead rows")
    (found,) = connection.rows(_O.read_transaction_age)
    if found["age"] > OLD_TRANSACTIONS:
        wrong.append(f"the oldest row that is not frozen is {found['age']:,} transactions old")
    mend = "Let autovacuum run, end what holds it back, then `VACUUM` what is named; "
    return _check("vacuum", wrong, "keeps up", mend + "docs/runbook/vacuum-behind.md.")


def _transactions(connection: PostgresConnection) -> Check:
    wrong = [
        f"session {r['pid']} of {r['role']} ({r['application'] or 'unnamed'}), {r['state']}, "
        f"holds a transaction of {r['seconds']:,} s"
        for r in connection.rows(_O.find_long_transactions, age=LONG)
    ]
    prepared = connection.rows(_O.find_prepared, age=LONG_PREPARED)
    wrong += [
        f"prepared transaction {r['gid']!r} of {r['role']} waits for {r['seconds']:,} s"
        for r in prepared
    ]
    mend = "End a session by `SELECT pg_terminate_backend(PID)`; docs/runbook/long-transaction.md."
    if prepared:
        mend = "A prepared transaction is ended by `COMMIT PREPARED` or `ROLLBACK PREPARED`, on "
        mend += "Citus by `SELECT recover_prepared_transactions()`; "
        mend += "docs/runbook/prepared-transaction.md."
    return _check("transactions", wrong, "none is old", mend)


def _sessions(connection: PostgresConnection, limit: int) -> Check:
    (found,) = connection.rows(_O.count_sessions)
    count = int(found["sessions"])
    wrong = [f"{count} of {limit}"] if count > SESSIONS_SHARE * limit else []
    mend = "Close what is not used, take a pool in session mode, or raise max_connections; "
    mend += "docs/runbook/no-connections.md."
    return _check("sessions", wrong, f"{count} of {limit}", mend)


def _replica(connection: PostgresConnection, settings: Row) -> Check:
    (found,) = connection.rows(_O.read_replica)
    seconds = found["seconds"] or 0
    wrong = ["it receives nothing"] if not found["is_receiving"] else []
    wrong += ["its replay is paused"] if found["is_paused"] else []
    wrong += [f"it is {seconds:,} s behind"] if seconds > BEHIND_S else []
    feedback = "on" if settings["hot_standby_feedback"] else "off: a gc may cancel long reads"
    mend = "Read its log; docs/runbook/replica-behind.md."
    return _check("replica", wrong, f"level; hot_standby_feedback {feedback}", mend)


def _replicas(connection: PostgresConnection) -> Check:
    replicas = connection.rows(_O.find_replicas)
    wrong = [
        f"{r['name']} is {r['state']}, {r['behind'] or 0:,} bytes behind"
        for r in replicas
        if r["state"] != "streaming" or (r["behind"] or 0) > BEHIND_BYTES
    ]
    wrong += [
        f"slot {r['name']} is used by nobody and keeps {r['kept']:,} bytes of the log"
        for r in connection.rows(_O.find_slots)
        if r["status"] not in ("reserved", "extended") or r["kept"] > BEHIND_BYTES
    ]
    detail = f"{len(replicas)}, none behind" if replicas else "none"
    mend = "Mend or drop them: a slot fills the disk; docs/runbook/replica-behind.md."
    return _check("replicas", wrong, detail, mend)


def _archive(connection: PostgresConnection, mode: str) -> Check:
    if mode == "off":
        return Check(name="archive", ok=True, detail="off: a backup is as old as the last dump")
    (found,) = connection.rows(_O.read_archiver)
    wrong = []
    if found["is_failing"]:
        wrong.append(f"{found['last_failed_wal']} could not be archived, {found['failed_count']} x")
    detail = f"on, last at {found['last_archived_time'] or 'no time yet'}"
    mend = "Run the archive_command by hand as the server's user: the log is kept until it works; "
    return _check("archive", wrong, detail, mend + "docs/runbook/archive-fails.md.")


def _disk(connection: PostgresConnection) -> Check:
    with connection.raw.transaction(force_rollback=True):
        connection.run(_O.probe_disk)
        spaces = json.loads(connection.rows(_Q.read_probe)[0]["found"])
    wrong = [
        f"{s['folder']} has {s['free']:,} bytes free"
        for s in spaces
        if s["free"] < FREE_BYTES or s["free"] < FREE_SHARE * s["total"]
    ]
    free = min(spaces, key=lambda s: s["free"])
    detail = f"{free['free'] / (1 << 30):,.1f} GiB free, the least in {free['folder']}"
    return _check("disk", wrong, detail, "Make room; docs/runbook/disk-full.md.")


_CITUS_QUERIES = load("citus")
_INSTALL = "Run `mmdb install` over the coordinator's URL: it puts every table where it belongs."
#: What a node must do before it can hop; the answer must be the coordinator's own.
_PROBES = {
    "version": "SELECT current_setting('server_version')",
    "Python": "SELECT mmdb.warm_up()",
}


def citus(connection: PostgresConnection) -> Iterator[Check]:
    """Yield whether a cluster's nodes can hop, and whether all lies where it should."""
    cluster = find_cluster(connection)
    if cluster is None:
        return
    if not is_installed(connection) or installed_engine(connection) != "citus":
        here = f"Citus {cluster.version} is here; mmdb's tables lie on this server alone"
        hint = unspread_hint(connection) if is_installed(connection) else ""
        yield Check(name="citus", ok=True, detail=hint or here)
        return
    yield Check(name="citus", ok=True, detail=f"Citus {cluster.version}, {cluster.nodes} nodes")
    yield from _placement(connection)
    nodes = connection.rows(_CITUS_QUERIES.find_nodes)
    silent = [row["node"] for row in nodes if not (row["answers"] and row["is_active"])]
    yield Check(
        name="nodes",
        ok=not silent,
        detail=f"no answer from {', '.join(silent)}" if silent else "all answer",
        mend="Start them again, or let a standby take their place: docs/citus.md."
        if silent
        else "",
    )
    if silent:
        return  # what follows asks all of them
    empty = [row["node"] for row in nodes if row["has_shards"] and not row["shards"]]
    yield Check(
        name="spread",
        ok=not empty,
        detail=f"nothing lies on {', '.join(empty)}"
        if empty
        else ", ".join(f"{row['partitions']} partitions on {row['node']}" for row in nodes),
        mend="Between runs: SELECT citus_rebalance_start('by_partition', "
        "shard_transfer_mode => 'block_writes')."
        if empty
        else "",
    )
    for name, command in _PROBES.items():
        yield from _compare(connection, name, command)
    (doubled,) = connection.rows(_CITUS_QUERIES.count_doubled)
    yield Check(
        name="places of hops",
        ok=not doubled["items"],
        detail=f"{doubled['items']} are taken twice" if doubled["items"] else "each taken once",
        mend="A node was restored by itself: restore the cluster as a whole."
        if doubled["items"]
        else "",
    )


def _placement(connection: PostgresConnection) -> Iterator[Check]:
    misplaced = [row["name"] for row in connection.rows(_CITUS_QUERIES.find_misplaced)]
    misplaced += [row["name"] for row in connection.rows(_CITUS_QUERIES.find_undelegated)]
    yield Check(
        name="placement",
        ok=not misplaced,
        detail=f"not where it belongs: {', '.join(misplaced)}"
        if misplaced
        else "tables and functions are where they belong",
        mend=_INSTALL if misplaced else "",
    )


def _compare(connection: PostgresConnection, name: str, command: str) -> Iterator[Check]:
    """Yield whether a command has the same answer on every node as here."""
    (here,) = connection.select(command)
    (expected,) = here.values()
    wrong = [
        f"{row['node']}: {row['result']}"
        for row in connection.rows(_CITUS_QUERIES.probe_nodes, command=command)
        if not row["answered"] or row["result"] != expected
    ]
    yield Check(
        name=f"nodes' {name}",
        ok=not wrong,
        detail="; ".join(wrong) if wrong else f"{expected}, as here",
        mend="Install the same packages on every server: results have the same bits only then."
        if wrong
        else "",
    )
