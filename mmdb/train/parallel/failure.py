"""The word that a failing member leaves for the others, in the rendezvous' store."""

from __future__ import annotations

import json
from typing import Any

from mmdb.errors import GroupBroken, HopError, MmdbError, TrainingFailed, from_sqlstate
from mmdb.train.failure import trace_of

_KEY = "failure"
#: The driver's, where members have ranks.
DRIVER = -1


def leave_word(store: Any, rank: int, error: BaseException) -> None:
    """Say why a group's round ends; the first word stands.

    Args:
        store: the group's part of the rendezvous' store.
        rank: of the member that failed, or DRIVER.
    """
    known = error if isinstance(error, MmdbError) else HopError(repr(error))
    word = {
        "rank": rank,
        "sqlstate": known.sqlstate,
        "message": known.message,
        "hint": known.hint,
        "trace": trace_of(error),
    }
    try:
        store.compare_set(_KEY, "", json.dumps(word))
    except RuntimeError:
        pass  # the rendezvous is gone: the others notice that


def heed_word(store: Any, rank: int) -> None:
    """Raise the error that another member has left word of, if one has.

    Raises:
        MmdbError: of the class that it met.
        GroupBroken: the store does not answer.
    """
    try:
        if not store.check([_KEY]):
            return
        word = json.loads(store.get(_KEY))
    except RuntimeError as error:
        raise GroupBroken("The driver's rendezvous does not answer any more.") from error
    if word["rank"] == rank:
        return
    found = from_sqlstate(word["sqlstate"], word["message"], word["hint"])
    assert found is not None
    if isinstance(found, TrainingFailed):
        found.trace = word["trace"]
    raise found
