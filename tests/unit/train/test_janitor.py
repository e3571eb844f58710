from __future__ import annotations

from pathlib import Path

from mmdb.db.duck import DuckConnection
from mmdb.train.drive.cleanup import LOGGED_STATES, MOST_LOGGED, Janitor


def test_duckdb_writes_its_log_into_the_file_after_so_many_states(tmp_path: Path) -> None:
    connection = DuckConnection(str(tmp_path / "a.duckdb"))

    def limit() -> int:
        (row,) = connection.select("SELECT current_setting('checkpoint_threshold') AS size")
        size, unit = row["size"].split()
        return int(float(size) * 1024 ** ["bytes", "KiB", "MiB", "GiB"].index(unit))

    janitor, before = Janitor(connection), limit()
    janitor.wrote([{"state_bytes": 1 << 16}, {"state_bytes": None}])
    assert limit() == before, "small states are logged as ever"
    janitor.wrote([{"state_bytes": 16 << 20}])
    janitor.wrote([{"state_bytes": 1 << 16}])
    assert limit() == LOGGED_STATES * (16 << 20)
    janitor.wrote([{"state_bytes": 1 << 30}])
    assert limit() == MOST_LOGGED
    janitor.close()
    assert limit() == before
    connection.close()
