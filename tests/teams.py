"""A database with teams: who is in which, and what two of them have made.

ann and amy are team a, rita reads for it; bob is alone; the worker and the admin serve everybody;
the application predicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import torch
from torch import nn

import mmdb
from mmdb.db.install import install
from tests.cluster import Cluster

ROLES = {
    "team_a": [],
    "ann": ["mmdb_trainer", "team_a"],
    "amy": ["mmdb_trainer", "team_a"],
    "rita": ["mmdb_reader", "team_a"],
    "bob": ["mmdb_trainer"],
    "rob": ["mmdb_reader"],
    "serf": ["mmdb_worker"],
    "guard": ["mmdb_admin"],
    "app": ["mmdb_predictor"],
}
QUERY = "SELECT x, y FROM public.points"
KEYED = "SELECT id, x FROM public.points"
#: Tables that are no team's: what everybody shares, or the owner alone configures.
COMMON = {
    "architecture",
    "architecture_edge",
    "architecture_node",
    "architecture_prefix",
    "definition",
    "environment",
    "factory",
    "function",
    "migration",
    "outline",
    "profile",
    "role_limit",
    "schedule",
    "schedule_run",
    "scoring",
    "scoring_failure",
    "setting",
    "share",
    "trainer",
    "worker",
    "worker_beat",
}

#: Functions that run any statement as mmdb's own do, to see which rows the policies give whom.
THROUGH = (
    "CREATE FUNCTION public.through(statement text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
    " AS $$ BEGIN PERFORM mmdb.know_caller(); EXECUTE statement; END $$",
    "CREATE FUNCTION public.through_rows(statement text) RETURNS SETOF jsonb LANGUAGE plpgsql"
    " SECURITY DEFINER AS $$ BEGIN PERFORM mmdb.know_caller();"
    " RETURN QUERY EXECUTE 'SELECT to_jsonb(r) FROM (' || statement || ') AS r'; END $$",
    "ALTER FUNCTION public.through(text) OWNER TO mmdb_system",
    "ALTER FUNCTION public.through_rows(text) OWNER TO mmdb_system",
)


def module(seed: int = 0, width: int = 64) -> nn.Module:
    """Return a small module with one tensor that has chunks of its own."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, 2))


@dataclass(frozen=True, slots=True)
class Teams:
    """A database with teams, seen by whoever asks."""

    url: str

    def url_of(self, role: str) -> str:
        """Return the URL with which a role connects."""
        return self.url.replace("postgres:", f"{role}:", 1)

    def connect(self, role: str = "postgres") -> mmdb.Database:
        """Open the database as a role."""
        return mmdb.connect(self.url_of(role))

    def rows_of(self, role: str, select: str) -> list[Any]:
        """Return the rows that mmdb's own statements would find for a role."""
        with psycopg.connect(self.url_of(role)) as session:
            found = session.execute("SELECT * FROM public.through_rows(%s)", [select]).fetchall()
        return [row for (row,) in found]

    def run(self, *statements: str) -> None:
        """Run statements as the owner."""
        with psycopg.connect(self.url, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.encode())


@contextmanager
def teams_in(cluster: Cluster, name: str, template: str) -> Iterator[Teams]:
    """Yield a database with teams and their roles, which are gone afterwards.

    Roles are the whole server's, so a fixture of this is for one module at most.
    """
    teams = Teams(cluster.create_database(name, template))
    install(teams.url, teams=True)
    try:
        for role, member_of in ROLES.items():
            teams.run(f"CREATE ROLE {role} LOGIN PASSWORD '{cluster.password}'")
            for group in member_of:
                teams.run(f"GRANT {group} TO {role}")
        teams.run(
            "ALTER ROLE ann SET mmdb.team = 'team_a'",
            "ALTER ROLE amy SET mmdb.team = 'team_a'",
            "CREATE TABLE public.points AS SELECT i AS id, sin(i)::real AS x, i % 2 AS y"
            " FROM generate_series(1, 100) AS i",
            "GRANT SELECT ON public.points TO public",
            "CREATE SCHEMA work",
            "GRANT ALL ON SCHEMA work TO public",
            *THROUGH,
        )
        yield teams
    finally:
        with psycopg.connect(teams.url) as session:
            made = {one for (one,) in session.execute("SELECT rolname FROM pg_roles").fetchall()}
        for role in reversed([role for role in ROLES if role in made]):
            teams.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
        cluster.drop_database(name)


def make(teams: Teams, role: str, tag: str, *, query: str = QUERY, seed: int = 0) -> None:
    """Let a role make dataset, run, hops, models and what hangs on them, all named after `tag`."""
    with teams.connect(role) as db:
        db.create_dataset(f"data_{tag}", query, partitions=1)
        space = {"method": "grid", "space": {"lr": [0.1]}}
        run = db.create_run(
            f"run_{tag}", dataset=f"data_{tag}", architecture="linear", search=space
        )
        (candidate,) = db.sql(
            "SELECT candidate_id FROM mmdb.candidate_overview WHERE run = %(r)s", {"r": run.name}
        )
        for part in db.sql(
            "SELECT part_id FROM mmdb.partition_overview WHERE dataset = %(d)s ORDER BY role",
            {"d": f"data_{tag}"},
        ):
            db.sql(
                "SELECT mmdb.train_hop(%(part)s::bigint, %(candidate)s::bigint)",
                {"part": part["part_id"], "candidate": candidate["candidate_id"]},
            )
        db.save_candidate(candidate["candidate_id"], f"best_{tag}")
        db.save(f"model_{tag}", module(seed))
        tuned = module(seed)
        with torch.no_grad():
            next(tuned.parameters())[0, 0] += 1
        db.save(f"model_{tag}", tuned, parent=f"model_{tag}", approach="update")
        db.set_alias(f"model_{tag}", "prod", version=1)
        db.tag(f"model_{tag}", stage="trial")
        db.note(f"model_{tag}", "a note")
        db.predict_into(f"best_{tag}", KEYED, f"work.predicted_{tag}")
        db.schedule(f"run_{tag}", "SELECT 1", "1 day", starts="2100-01-01 00:00+00")
