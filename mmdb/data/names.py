"""Names that users give to datasets, runs, models and factories."""

from __future__ import annotations

import re

from mmdb.errors import InvalidName
from mmdb.messages import show

_NAME = re.compile(r"[\w\-./]{1,200}", re.ASCII)


def check_name(name: object) -> str:
    """Return `name` if it may name something.

    Raises:
        InvalidName
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(f"{show(name)} cannot be a name.")
    return name
