"""Between teams: rows that are shared with nobody are not trained on by their hash either."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from mmdb import errors
from tests.attacks.test_rows import add, candidate_of, taken_back
from tests.cluster import Cluster
from tests.teams import Teams, make, teams_in


@pytest.fixture(scope="module")
def teams(cluster: Cluster, template: str) -> Iterator[Teams]:
    """Yield a database in which ann has made one of everything, and shared a model with bob."""
    with teams_in(cluster, "mmdb_attacked_teams", template) as made:
        make(made, "ann", "north")
        with made.connect("ann") as db:
            db.sql("SELECT mmdb.share_model('best_north', 'bob')")
        yield made


def test_a_partition_that_the_node_has_decoded_is_not_had_by_its_hash(teams: Teams) -> None:
    with teams.connect() as owner:
        (known,) = owner.sql(
            "SELECT p.* FROM mmdb.partition AS p JOIN mmdb.dataset USING (dataset_id) "
            "WHERE name = 'data_north' AND p.role = 'train'"
        )
    with (
        psycopg.connect(teams.url_of("bob"), autocommit=True) as session,
        pytest.raises(errors.BlockCorrupt),
        taken_back(session),
    ):
        query = "SELECT x + 1 AS x, y FROM public.points"
        session.execute("SELECT mmdb.create_dataset('theft', %s, partitions => 1)", (query,))
        session.execute(
            "SELECT mmdb.create_run('theft', 'theft', 'linear', options => '{\"order\": \"free\"}')"
        )
        found = session.execute("SELECT dataset_id FROM mmdb.dataset WHERE name = 'theft'")
        row = {name: known[name] for name in ("role", "row_count", "byte_count", "content_hash")}
        (dataset_id,) = found.fetchone() or (None,)
        row |= {"dataset_id": dataset_id, "ordinal": 1}
        part_id = add(session, "partition", row)
        candidate_id = candidate_of(session, "theft")
        session.execute("SELECT * FROM mmdb.train_hop(%s, %s)", (part_id, candidate_id))
