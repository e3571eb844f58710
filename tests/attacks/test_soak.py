"""Sessions that are cancelled and killed for some seconds leave whole what they made."""

from __future__ import annotations

import random

from tests.bench.attack.soak import Found, look, soak
from tests.cluster import Cluster
from tests.teams import make, teams_in

SECONDS = 12.0


def test_what_sessions_made_is_whole_and_what_is_not_is_found(
    cluster: Cluster, template: str
) -> None:
    with teams_in(cluster, "mmdb_soaked", template) as teams:
        make(teams, "ann", "before")
        found = soak(cluster, teams, SECONDS, random.Random(7))
        assert found.wrong == []
        assert found.models >= 3 and found.hops >= 2 and found.strikes["ended"] > 0
        teams.run(
            "UPDATE mmdb.hop SET state_in = '\\x00' WHERE ordinal = 1",
            "UPDATE mmdb.tensor_chunk SET data = '\\x00'",
        )
        broken = Found()
        look(teams, broken)
        said = "\n".join(broken.wrong)
        assert "begins elsewhere" in said and "tensors: " in said and "model_before@1: " in said
