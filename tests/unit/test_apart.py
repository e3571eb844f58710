"""Calls in threads: PostgreSQL's hears what is to end one, and calls share the other."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from mmdb.errors import Cancelled
from mmdb.server.apart import POLL_S, CallThread, ServerCall, apart, this_call
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
        thread = CallThread()
        start_without_signals(thread)
        thread.begin(call)
        signal.setitimer(signal.ITIMER_REAL, POLL_S + (k - 30) * 2e-6)
        with pytest.raises(Cancelled):
            call.serve(session)
        thread.end()
        thread.join()


def test_calls_share_a_thread_unless_one_calls_another(session: Session) -> None:
    def calling() -> tuple[threading.Thread, threading.Thread]:
        call = this_call()
        assert call is not None
        return here(), call.ask(lambda: apart(session, here))

    here = threading.current_thread
    first = apart(session, here)
    outer, inner = apart(session, calling)
    assert outer is first and inner is not first
    assert apart(session, here) in {outer, inner}


def test_a_thread_that_was_left_behind_does_no_other_call(session: Session) -> None:
    left: list[threading.Thread] = []
    go_on = threading.Event()

    def stay() -> None:
        left.append(threading.current_thread())
        go_on.wait(LONG_S)

    session.told = True
    with pytest.raises(Cancelled):
        apart(session, stay)
    session.told = False
    go_on.set()
    assert apart(session, threading.current_thread) not in left
    left[0].join(LONG_S)
    assert not left[0].is_alive()
