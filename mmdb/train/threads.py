"""Threads that no signal handler runs in."""

from __future__ import annotations

import signal
import threading


def start_without_signals(thread: threading.Thread) -> None:
    """Start a thread with every signal blocked in it, and in the threads that it starts.

    Inside PostgreSQL a signal that lands on another thread runs PostgreSQL's handler there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
