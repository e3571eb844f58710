"""The memory that a large dataset takes."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_large_dataset_takes_bounded_memory(postgres_url: str) -> None:
    """400,000 rows of 72 numbers are 117 MB; the client holds a few blocks at a time."""
    code = f"""
import resource
from mmdb.data.registration import create_dataset
from mmdb.db.url import connect
columns = ", ".join(f"((i * 79 + {{k}}) % 1000)::real AS c{{k}}" for k in range(72))
select = f"SELECT {{columns}}, i % 2 AS y FROM generate_series(1, {{{{}}}}) AS g (i)"
connection = connect({postgres_url!r})
create_dataset(connection, "small", select.format(1000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert create_dataset(connection, "large", select.format(400_000)).rows == 400_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
connection.close()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100
