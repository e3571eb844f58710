"""What a simulated run came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

#: Seconds of computing, reading, the hop itself, exchanging, and validating.
Pieces = tuple[float, float, float, float, float]
NOTHING: Pieces = (0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Trace:
    """What a simulated run came to; the phases are worker-seconds."""

    makespan_s: float = 0.0
    compute_s: float = 0.0
    read_s: float = 0.0
    hop_s: float = 0.0
    communication_s: float = 0.0
    validation_s: float = 0.0
    hops: int = 0
    moves: int = 0  # hops that took up a state which another worker had left
    bytes_moved: float = 0.0

    def add(self, pieces: Pieces, took_s: float, workers: int, gap_s: float = 0.0) -> None:
        """Count an assignment: what it takes alone, and what it took among others."""
        alone = sum(pieces)
        scale = workers * took_s / alone if alone else 0.0
        compute, read, hop, communication, validation = pieces
        if hop >= gap_s:
            hop -= gap_s
        else:
            validation = max(0.0, validation - gap_s)
        self.compute_s += scale * compute
        self.read_s += scale * read
        self.hop_s += scale * hop
        self.communication_s += scale * communication
        self.validation_s += scale * validation
        self.hops += workers

    def scale(self, factor: float) -> None:
        """Multiply all seconds."""
        for name in SECONDS:
            setattr(self, name, getattr(self, name) * factor)


#: Fields of a trace that are seconds.
SECONDS = tuple(one.name for one in fields(Trace) if one.name.endswith("_s"))


def mean_of(traces: Sequence[Trace]) -> Trace:
    """Return the mean of runs that differ in their noise and their order."""
    found = Trace()
    for one in fields(Trace):
        mean = sum(getattr(trace, one.name) for trace in traces) / len(traces)
        setattr(found, one.name, round(mean) if isinstance(one.default, int) else mean)
    return found
