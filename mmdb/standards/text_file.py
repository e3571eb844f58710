"""Texts written to files, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from mmdb.store.files.atomic import replacing


def write_text(content: str, file: str | Path) -> int:
    """Write a text, over a file that is there; return its bytes.

    Raises:
        FileNotWritten, FileExists: it is a folder.
    """
    data = content.encode()
    with replacing(Path(file), overwrite=True) as target:
        target.write(data)
    return len(data)
