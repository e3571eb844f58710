"""The best choices within two budgets: exact for few prefixes, nearly so for many. Pure.

Demands are taken chain by chain, the deepest first. What remains to be decided depends on what was
decided only by the bytes that are left and by what the deeper ones of the same chain need. So of
all partial answers with the same need those are followed that no other beats in seconds and in both
kinds of bytes, and of these only the ones that could still beat the best answer that is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise, product

from mmdb.train.features.storage_cost import NOTHING, Need, Problem

#: Prefixes for which the best of all choices is found.
EXACT = 16
#: Parts of a budget that are told apart where there are more.
GRAINS = 64
#: Limits of what workers recompute at once that are tried where there are more.
HELD = 10
#: Prefixes of which any two are changed at once before the search.
PAIRED = 24
#: Seconds that make no difference, as a share.
_SAME = 1e-9

Choices = tuple[str, ...]
#: Other choices for some demands, by place.
Move = Mapping[int, str]


def best(problem: Problem) -> Choices:
    """Return the choices that take the fewest seconds within the budgets, by demand."""
    near = _Near(problem)
    found = min(near.improved(near.filled()), near.improved(near.emptied()), key=problem.total_s)
    is_exact = len(problem.demands) <= EXACT
    held = sorted(_held_bytes(problem), reverse=True)
    for size in held if is_exact else held[:: -(-len(held) // HELD)]:
        search = _Search(problem, size, None if is_exact else GRAINS)
        found = search.search(problem.total_s(found)) or found
    return found if is_exact else near.improved(found)


# -- near ---------------------------------------------------------------------------


class _Near:
    """Answers that fit, from which no small change leads to a better one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.options = [problem.options(place) for place in range(len(problem.demands))]
        self.chain_of = {place: chain for chain in problem.chains for place in chain}
        self.seconds = cache(self._seconds)

    def filled(self) -> Choices:
        """Return what streaming leads to when, time and again, what saves most a byte is kept."""
        choices = tuple(options[-1] for options in self.options)
        while True:
            gains = [(self._gain(choices, move), move) for move in self._single()]
            gain, move = max(gains, key=lambda one: one[0], default=(0.0, {}))
            if gain <= 0:
                return choices
            choices = _changed(choices, move)

    def emptied(self) -> Choices:
        """Return what is left of the best without budgets when what loses least a byte leaves."""
        choices = _Search(self.problem, self.problem.conditions.memory_bytes).without_budgets()
        while (over := self._over(choices)) > 0:
            losses = []
            for move in self._single():
                changed = _changed(choices, move)
                if (less := over - self._over(changed)) > 0:
                    losses.append((self._lost_s(choices, changed, move) / less, changed))
            choices = min(losses, key=lambda one: one[0])[1]
        return choices

    def improved(self, choices: Choices) -> Choices:
        """Return choices that no change of one demand, or of two at once, makes better."""
        moves = [*self._single(), *self._double()]
        better = True
        while better:
            better = False
            for move in moves:
                changed = _changed(choices, move)
                if self._lost_s(choices, changed, move) < 0 and self.problem.fits(changed):
                    choices, better = changed, True
        return choices

    def _single(self) -> Iterator[Move]:
        for place, options in enumerate(self.options):
            yield from ({place: option} for option in options)

    def _double(self) -> Iterator[Move]:
        """Yield changes of two demands: of any, or of neighbours where there are many."""
        pairs: Iterable[tuple[int, int]] = combinations(range(len(self.options)), 2)
        if len(self.options) > PAIRED:
            pairs = (pair for chain in self.problem.chains for pair in pairwise(chain))
        for i, j in pairs:
            yield from ({i: a, j: b} for a, b in product(self.options[i], self.options[j]))

    def _gain(self, choices: Choices, move: Move) -> float:
        """Return the seconds that a change saves, for the share of the budgets that it takes."""
        changed = _changed(choices, move)
        if not self.problem.fits(changed):
            return 0.0
        taken = self._share(changed) - self._share(choices)
        return -self._lost_s(choices, changed, move) / (max(0.0, taken) + 1e-6)

    def _share(self, choices: Choices) -> float:
        given = self.problem.conditions
        disk, memory = self.problem.bytes_of(choices)
        return disk / max(1, given.disk_bytes) + memory / max(1, given.memory_bytes)

    def _over(self, choices: Choices) -> float:
        """Return by what share of the budgets choices are too large."""
        given = self.problem.conditions
        disk, memory = self.problem.bytes_of(choices)
        return max(0.0, disk / max(1, given.disk_bytes) - 1) + max(
            0.0, memory / max(1, given.memory_bytes) - 1
        )

    def _lost_s(self, choices: Choices, changed: Choices, move: Move) -> float:
        """Return the seconds that a change adds; 0 where they are too few to be true."""
        before = after = 0.0
        for chain in {self.chain_of[place] for place in move}:
            before += self.seconds(chain, tuple(choices[place] for place in chain))
            after += self.seconds(chain, tuple(changed[place] for place in chain))
        return after - before if abs(after - before) > _SAME * before else 0.0

    def _seconds(self, chain: tuple[int, ...], chosen: Choices) -> float:
        return self.problem.chain_s(chain, dict(zip(chain, chosen, strict=True)))


def _changed(choices: Choices, move: Move) -> Choices:
    return tuple(move.get(place, choice) for place, choice in enumerate(choices))


# -- exact --------------------------------------------------------------------------


def _held_bytes(problem: Problem) -> set[int]:
    """Return how many bytes the workers of a node may hold of what they recompute."""
    places = range(len(problem.demands))
    held = {
        problem.memory_bytes(place, "recomputed")
        for place in places
        if "recomputed" in problem.options(place)
    }
    return held | {0}


@dataclass(frozen=True, slots=True)
class _Label:
    """What was decided of the first demands: seconds, bytes of both kinds, and how."""

    seconds: float
    disk: int
    memory: int
    choices: Choices


class _Search:
    """A search in which workers hold `held` bytes of recomputed features, at most."""

    def __init__(self, problem: Problem, held: int, grains: int | None = None) -> None:
        """Args: grains: of a budget, where bytes that differ by less are taken for equal."""
        self.problem = problem
        self.held = held
        self.order = [place for chain in problem.chains for place in chain]
        self.first = {chain[0] for chain in problem.chains}
        self.memory_bytes = problem.conditions.memory_bytes - held
        budgets = (problem.conditions.disk_bytes, self.memory_bytes)
        self.grains = tuple(1 if grains is None else max(1, b // grains) for b in budgets)
        self.step = cache(self._step)
        self.least = cache(self._least)

    def search(self, known_s: float) -> Choices | None:
        """Return the best choices, by demand; None: they take `known_s` seconds, or more."""
        known_s -= _SAME * known_s
        labels = {NOTHING: [_Label(0.0, 0, 0, ())]}
        for position in range(len(self.order)):
            grown: dict[Need, list[_Label]] = {}
            for need, label in ((need, one) for need, found in labels.items() for one in found):
                for option in self._options(position):
                    following, longer = self._grow(position, need, label, option)
                    if longer is not None and (
                        longer.seconds + self.least(position + 1, following) < known_s
                    ):
                        grown.setdefault(following, []).append(longer)
            labels = {need: _undominated(found, *self.grains) for need, found in grown.items()}
        found = [label for labels_ in labels.values() for label in labels_]
        if not found:
            return None
        decided = min(found, key=lambda label: label.seconds).choices
        return tuple(choice for _, choice in sorted(zip(self.order, decided, strict=True)))

    def without_budgets(self) -> Choices:
        """Return the best choices, by demand, where all bytes fit that fit alone."""
        need, decided = NOTHING, []
        for position in range(len(self.order)):
            ways = [(self.step(position, need, o), o) for o in self._options(position)]
            (need, _), option = min(
                ways, key=lambda way: way[0][1] + self.least(position + 1, way[0][0])
            )
            decided.append(option)
        return tuple(choice for _, choice in sorted(zip(self.order, decided, strict=True)))

    def _options(self, position: int) -> tuple[str, ...]:
        place = self.order[position]
        return tuple(
            option
            for option in self.problem.options(place)
            if option != "recomputed" or self.problem.memory_bytes(place, option) <= self.held
        )

    def _grow(
        self, position: int, need: Need, label: _Label, option: str
    ) -> tuple[Need, _Label | None]:
        """Return a label with one more choice, where it is within the budgets."""
        place, problem = self.order[position], self.problem
        disk = label.disk + problem.disk_bytes(place, option)
        memory = label.memory + (option == "memory") * problem.memory_bytes(place, option)
        if disk > problem.conditions.disk_bytes or memory > self.memory_bytes:
            return need, None
        following, seconds = self.step(position, need, option)
        return following, _Label(label.seconds + seconds, disk, memory, (*label.choices, option))

    def _step(self, position: int, need: Need, option: str) -> tuple[Need, float]:
        """Return what is needed after a choice, and its seconds."""
        place = self.order[position]
        following, read_s, compute_s = self.problem.pass_step(place, option, need)
        seconds = self.problem.weight_s(place, option) + read_s + compute_s
        ends = position + 1 == len(self.order) or self.order[position + 1] in self.first
        return NOTHING if ends else following, seconds

    def _least(self, position: int, need: Need) -> float:
        """Return the seconds that the remaining demands take where there are no budgets."""
        if position == len(self.order):
            return 0.0
        steps = [self.step(position, need, option) for option in self._options(position)]
        return min(seconds + self.least(position + 1, following) for following, seconds in steps)


def _undominated(labels: list[_Label], disk_grain: int, memory_grain: int) -> list[_Label]:
    """Return the labels that no other beats, or equals, in seconds and in grains of both bytes."""
    kept: list[_Label] = []
    disks: list[int] = []  # of those kept that no other beats in bytes, rising;
    memories: list[int] = []  # theirs fall
    for label in sorted(labels, key=lambda one: (one.seconds, one.disk, one.memory)):
        disk, memory = label.disk // disk_grain, label.memory // memory_grain
        place = bisect_right(disks, disk)
        if place and memories[place - 1] <= memory:
            continue
        kept.append(label)
        low = high = bisect_left(disks, disk)
        while high < len(disks) and memories[high] >= memory:
            high += 1
        disks[low:high], memories[low:high] = [disk], [memory]
    return kept
