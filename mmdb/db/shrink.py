"""A DuckDB file without the blocks that nothing uses: written anew beside it, then in its place.

DuckDB keeps the blocks of what was deleted for later rows; it cuts a file only where they lie at
its end. `python -m mmdb.db.shrink FILE` does it in a process of its own: the file's lock belongs to
a process, and tells whether another one has it open.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

from mmdb.db.queries import quote_text

#: A file is written anew if it would be shorter by this share: that takes as long as writing it.
WORTH_IT = 0.25


def new_file(path: str) -> Path:
    """Return the file that is written beside another one; whoever finds it there deletes it."""
    return Path(f"{path}.shrunk")


def is_worth_it(connection: duckdb.DuckDBPyConnection, path: str) -> bool:
    """Return whether a file has much that nothing uses, and its disk room for what is used."""
    found = connection.execute(
        "SELECT free_blocks * block_size, used_blocks * block_size FROM pragma_database_size() "
        "WHERE database_name = current_database()"
    ).fetchone()
    free, used = found or (0, 0)
    room = shutil.disk_usage(Path(path).parent).free
    return bool(free > WORTH_IT * (free + used) and room > 2 * used)


def shrink(path: str) -> None:
    """Write a file anew that this process has closed; what cannot be done leaves it as it is."""
    program = [sys.executable, "-m", "mmdb.db.shrink", path]
    subprocess.run(program, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write_anew(path: str) -> None:
    """Put a copy of a file in its place, at once: a kill leaves the one or the other.

    Raises:
        duckdb.Error: somebody has it open, or its disk is full.
    """
    new = new_file(path)
    new.unlink(missing_ok=True)
    with duckdb.connect() as connection:
        try:
            # Open until the end, so that nobody can write to what is about to be replaced.
            connection.execute(f"ATTACH {quote_text(path)} AS before (READ_ONLY)")
            connection.execute(f"ATTACH {quote_text(str(new))} AS after")
            connection.execute("COPY FROM DATABASE before TO after")
            connection.execute("CHECKPOINT after")
            connection.execute("DETACH after")
            shutil.copymode(path, new)
            with new.open("rb") as file:
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    write_anew(sys.argv[1])
