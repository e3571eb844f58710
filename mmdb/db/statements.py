"""A file of SQL taken apart: Citus passes each statement on to its nodes by itself."""

from __future__ import annotations

import re

_PART = re.compile(
    r"""
    (?P<skipped>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<end>;)
    | (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<word>\w+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(sql: str) -> list[str]:
    """Return the statements of a file, without their ends and without comments before them.

    >>> split_statements("SELECT ';'; -- one\\nDO $$ BEGIN; END $$;\\n")
    ["SELECT ';'", 'DO $$ BEGIN; END $$']
    """
    statements: list[str] = []
    begin: int | None = None
    for part in _PART.finditer(sql):
        if part["end"]:
            if begin is not None:
                statements.append(sql[begin : part.start()].rstrip())
            begin = None
        elif begin is None and not part["skipped"]:
            begin = part.start()
    if begin is not None:
        statements.append(sql[begin:].rstrip())
    return statements
