"""Texts are written to files, and never over what is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmdb.errors import FileNotWritten
from mmdb.standards.http_service import write_text


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "x" * 300, "none/file"):
        with pytest.raises(FileNotWritten):
            write_text("a", tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]
    assert write_text("a", tmp_path / "é.md") == 1
