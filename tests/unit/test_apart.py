"""PostgreSQL's thread hears what is to end a call, whenever it is told."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from mmdb.errors import Cancelled
from mmdb.server.apart import POLL_S, ServerCall, this_call
from mmdb.train.values.runtime import start_without_signals

#: Seconds that a call takes which nobody ends.
LONG_S = 30.0


class Session:
    """What `plpy` does outside PostgreSQL: it ends the statement once it was told."""

    told = False

    def tell(self, *_: object) -> None:
        """Be a signal's handler."""
        self.told = True

    def execute(self, _: str) -> None:
        """Heed what was told."""
        if self.told:
            raise Cancelled("canceling statement due to statement timeout", hint="")


@pytest.fixture
def session() -> Iterator[Session]:
    """Return a session that the process's timer ends."""
    made = Session()
    before = signal.signal(signal.SIGALRM, made.tell)
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_at_the_end_of_a_poll_is_heard(session: Session) -> None:
    for k in range(60):
        session.told = False
        call = ServerCall(lambda: this_call().stop.wait(LONG_S))  # type: ignore[union-attr]
        start_without_signals(call)
        signal.setitimer(signal.ITIMER_REAL, POLL_S + (k - 30) * 2e-6)
        with pytest.raises(Cancelled):
            call.serve(session)
        call.join()
