"""Servers made of a base backup and archived log, and databases compared row by row."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psycopg
from psycopg import sql

from tests.cluster import Cluster, ClusterError

#: Seconds after which something that should happen by itself fails the test.
PATIENCE_S = 120


class ArchivingCluster(Cluster):
    """A server that archives its log into a folder beside its data."""

    def __init__(self) -> None:
        super().__init__({"wal_level": "replica", "archive_mode": "on"})
        self.archive = self.directory / "archive"
        self.archive.mkdir()
        os.chown(self.archive, self._owner.pw_uid, self._owner.pw_gid)
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET archive_command = 'cp %p {self.archive}/%f'")
            connection.execute("SELECT pg_reload_conf()")

    def back_up(self, folder: Path) -> None:
        """Write a base backup into a new folder, as pg_basebackup does."""
        command: list[str | Path] = [self.server.bin / "pg_basebackup", "-D", folder]
        command += ["-d", self.url(), "-X", "none", "--checkpoint=fast", "--no-sync"]
        done = self._run_as_owner(command)
        if done.returncode != 0:
            raise ClusterError(f"pg_basebackup failed.\n{done.stderr}")

    def archive_all(self) -> None:
        """Wait until all that was written so far is archived."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            ((segment,),) = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchall()
            deadline = time.monotonic() + PATIENCE_S
            query = "SELECT coalesce(last_archived_wal, '') >= %s FROM pg_stat_archiver"
            while connection.execute(query, (segment,)).fetchone() != (True,):
                assert time.monotonic() < deadline, f"{segment} is not archived"
                time.sleep(0.05)


class RestoredCluster(Cluster):
    """A server that goes from a base backup of another one to a point that was named there.

    It waits there as a replica that only reads; `promote` makes it a server of its own.
    """

    def __init__(self, origin: ArchivingCluster, backup: Path, target: str) -> None:
        self._origin, self._backup = origin, backup
        super().__init__(
            {
                "archive_mode": "off",
                "restore_command": f"cp {origin.archive}/%f %p",
                "recovery_target_name": target,
                "recovery_target_action": "pause",
            }
        )
        with psycopg.connect(self.url(), autocommit=True) as connection:
            state = "SELECT pg_get_wal_replay_pause_state()"
            while connection.execute(state).fetchone() != ("paused",):  # it answers before that
                time.sleep(0.02)

    def _initdb(self) -> None:
        self.password = self._origin.password
        done = self._run_as_owner(["cp", "-a", self._backup, self.data])
        if done.returncode != 0:
            raise ClusterError(f"The backup cannot be copied.\n{done.stderr}")
        done = self._run_as_owner(["touch", self.data / "recovery.signal"])
        assert done.returncode == 0, done.stderr

    def promote(self) -> None:
        """End the recovery where it is."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(wait => true)")


def run(*command: str | Path) -> None:
    """Run a program of PostgreSQL's."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def contents(url: str) -> dict[str, str]:
    """Return count and digest of each table's rows, mmdb's and the user's, bytes included."""
    found = {}
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_class AS c"
            " INNER JOIN pg_namespace AS n ON c.relnamespace = n.oid"
            " WHERE n.nspname IN ('mmdb', 'public') AND c.relkind = 'r' ORDER BY 1, 2"
        ).fetchall()
        for schema, table in tables:
            query = sql.SQL(
                "SELECT count(*) || md5(string_agg(md5(t::text), '' ORDER BY md5(t::text)))"
                " FROM {} AS t"
            )
            (row,) = connection.execute(query.format(sql.Identifier(schema, table))).fetchall()
            found[f"{schema}.{table}"] = row[0] or ""
    return found
