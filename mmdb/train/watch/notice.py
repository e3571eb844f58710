"""Lines of text about a training, for psql and for logs: a few words, now and then."""

from __future__ import annotations

from mmdb.train.watch.snapshot import RunView, Snapshot


def notice(run: RunView) -> str:
    """Return one line about a run: the epoch that ended last, and how far the whole run is."""
    far = progress_text(run)
    end = run.latest
    if end is None:
        return far
    text = f"epoch {end.epochs}/{run.epochs} of candidate {end.label}"
    if end.value is not None:
        text += f": {run.metric} {number_text(end.value)}"
        if run.best is not None:
            text += f", best {number_text(run.best.best)}"
    return f"{text}; {far}"


def progress_text(run: RunView) -> str:
    """Return hops done and to be done, and the time left."""
    text = f"{run.hops_done}/{run.hops_total} hops"
    if run.seconds_left is not None and run.hops_done < run.hops_total:
        text += f", {duration_text(run.seconds_left)} left"
    return text


def number_text(value: float | None) -> str:
    """Return a metric with three digits after the point, or four significant ones if it is large.

    >>> number_text(0.93415), number_text(1234.5), number_text(0.00012), number_text(None)
    ('0.934', '1234', '0.00012', '')
    """
    if value is None:
        return ""
    if value == 0 or 0.001 <= abs(value) < 100:
        return f"{value:.3f}"
    return f"{value:.4g}"


def duration_text(seconds: float) -> str:
    """Return seconds in units that people use.

    >>> [duration_text(s) for s in (0.3, 12.4, 300, 4800, 360_000)]
    ['0 s', '12 s', '5 min', '1 h 20 min', '4 d 4 h']
    """
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


class Notices:
    """Chooses what is worth a line: failures, ends of epochs, and a sign of life now and then.

    Args:
        every_s: seconds between two lines about epochs, at least.
        quiet_s: seconds after which a line comes although no epoch has ended.
    """

    def __init__(self, *, every_s: float = 1.0, quiet_s: float = 10.0) -> None:
        self._every_s, self._quiet_s = every_s, quiet_s
        self._said_at: float | None = None
        self._said: str | None = None
        self._failed_at = float("-inf")

    def lines(self, snapshot: Snapshot) -> list[str]:
        """Return what is new since the last call: failures at once, the rest not too often."""
        lines = [
            f"candidate {failure.label} failed: {failure.error}"
            for failure in snapshot.failures
            if failure.at > self._failed_at
        ]
        if snapshot.failures:
            self._failed_at = snapshot.failures[-1].at
        line = self._line(snapshot)
        return lines if line is None else [*lines, line]

    def _line(self, snapshot: Snapshot) -> str | None:
        if self._said_at is None:
            self._said_at = snapshot.at
        runs = [run for run in snapshot.runs if run.hops_done]
        if not runs:
            return None
        run = max(runs, key=lambda run: run.latest.at if run.latest else 0.0)
        ended = run.latest is not None and run.latest.at > self._said_at
        since = snapshot.at - self._said_at
        if since < (self._every_s if ended else self._quiet_s):
            return None
        line = notice(run) if ended else progress_text(run)
        line = line if len(snapshot.runs) == 1 else f"{run.run}: {line}"
        if line == self._said:
            return None
        self._said_at, self._said = snapshot.at, line
        return line
