"""Which candidates wait for a worker, where each is, and which can share a hop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mmdb.train.schedule.workload import NOBODY, Backlog, Parts, Strategy

#: (candidate, epoch) -> the train parts in the order in which they must be visited.
Route = Callable[[int, int], Sequence[int]]


class CandidateQueue(Backlog):
    """The candidates of a core; numbers throughout, sets as integers with one bit a member.

    A candidate that *waits* could start a hop now. `needs` says which of those that wait could
    start which part; where any unvisited part may be next, also those that do not wait stand there.
    """

    __slots__ = (
        "_alone",
        "_homes",
        "_route",
        "_stages",
        "_stepwise",
        "_train",
        "bits_of_part",
        "doing",
        "home",
        "homed",
        "last",
        "loose",
        "may",
        "needs",
        "opened",
        "pin",
        "pinned",
        "stage",
        "todo",
        "visits",
    )

    def __init__(
        self, strategy: Strategy, stages: Sequence[Parts], partitions: int, route: Route | None
    ) -> None:
        super().__init__()
        self._alone, self._stages, self._route = strategy.alone, tuple(stages), route
        self._homes = False  # whether `homed` is kept
        self._stepwise = False  # whether exactly one part is next
        self._train = partitions
        parts = max(stage.bit_length() for stage in stages)
        self.bits_of_part = [1 << p for p in range(parts)]
        self.visits = sum(stage.bit_count() for stage in stages)  # of an epoch
        self.needs = [0] * parts
        self.loose = 0  # waiting, for any worker
        self.pinned: list[int] = []  # waiting, for this worker alone
        self.homed: list[int] = []  # candidates whose state a worker holds
        self.opened: list[int] = []  # that have begun to wait since the last decision
        self.stage: list[int] = []
        self.todo: list[Parts] = []  # of the stage, not started
        self.may: list[Parts] = self.todo  # of those, what may start now
        self.doing: list[int] = []  # parts under way
        self.last: list[int] = []  # train part visited last
        self.home: list[int] = []  # worker
        self.pin: list[int] = []  # worker

    def add(self, epoch: int, goal: int, visited: Parts, last: int, weight: float) -> int:
        """Add a candidate, which waits if there is something to do; return its number."""
        c = len(self.bits)
        self.bits.append(1 << c)
        for column, value in (
            (self.epoch, epoch),
            (self.goal, goal),
            (self.doing, 0),
            (self.left, (goal - epoch) * self.visits - visited.bit_count()),
            (self.level, NOBODY),
            (self.last, last),
            (self.home, NOBODY),
            (self.pin, NOBODY),
            (self.stage, 0),
            (self.todo, 0),
        ):
            column.append(value)
        if self.may is not self.todo:
            self.may.append(0)
        self.weight.append(weight)
        self.closed.append(False)
        self._enter(c, next(k for k, parts in enumerate(self._stages) if parts & ~visited), visited)
        self.rank(c)
        self.wait(c)
        return c

    def add_worker(self) -> None:
        """Add a worker that holds no state."""
        self.pinned.append(0)
        self.homed.append(0)

    def waits(self, c: int) -> bool:
        """Return whether a candidate waits for a worker."""
        if self.level[c] < 0 or not self.todo[c]:
            return False
        return not (self.doing[c] and self._alone)

    def wait(self, c: int) -> None:
        """Let a candidate wait, if there is something that it could start now."""
        todo = self.todo[c]
        if self.level[c] < 0 or not todo or (self.doing[c] and self._alone):
            return  # see `waits`
        bit, pin = self.bits[c], self.pin[c]
        if self._stepwise:
            if self._route is None:
                after = todo >> (self.last[c] + 1)  # as in `following`
                part = (
                    self.last[c] + (after & -after).bit_length()
                    if after
                    else (todo & -todo).bit_length() - 1
                )
            else:
                part = self._next(c, todo)
            self.may[c] = self.bits_of_part[part]
            self.needs[part] |= bit
        if pin < 0:
            self.loose |= bit
        else:
            self.pinned[pin] |= bit
        self.opened.append(c)

    def stop_waiting(self, c: int) -> None:
        """Let a candidate that may be waiting wait no more."""
        bit, pin = self.bits[c], self.pin[c]
        if not self.waits(c):
            return
        if pin < 0:
            self.loose ^= bit
        else:
            self.pinned[pin] ^= bit
        if self._stepwise:
            self.needs[self.may[c].bit_length() - 1] ^= bit

    def start(self, c: int, part: int) -> None:
        """Start a part of a candidate that waits."""
        bit, doing = self.bits[c], self.doing[c]
        self.needs[part] ^= bit
        todo = self.todo[c] = self.todo[c] ^ self.bits_of_part[part]
        self.doing[c] = doing + 1
        if not doing if self._alone else not todo:  # it waits no more
            pin = self.pin[c]
            if pin < 0:
                self.loose ^= bit
            else:
                self.pinned[pin] ^= bit

    def done(self, c: int, worker: int, part: int) -> None:
        """Count a part as done by `worker`, and let the candidate wait for the next."""
        home = self.home[c]
        if home != worker:
            self.home[c] = worker
            if self._homes:
                bit = self.bits[c]
                if home >= 0:
                    self.homed[home] ^= bit
                self.homed[worker] |= bit
        if part < self._train:
            self.last[c] = part
        doing = self.doing[c] = self.doing[c] - 1
        left = self.left[c] = self.left[c] - 1
        level = self.level[c]
        if level >= 0:
            weight = self.weight[c]
            self.load_s -= weight
            if int(left * weight * self.ranks.scale) != level:
                self.place(c)
        if not doing and not self.todo[c]:
            self._advance(c)
        self.wait(c)

    def undo(self, c: int, part: int) -> None:
        """Take back a part that was started, and let the candidate wait again."""
        self.stop_waiting(c)
        self.doing[c] -= 1
        self.todo[c] |= self.bits_of_part[part]
        if not self._stepwise:
            self.needs[part] |= self.bits[c]
        self.wait(c)

    def leave(self, c: int) -> None:
        """Forget which worker holds a candidate's state."""
        home = self.home[c]
        if home >= 0:
            if self._homes:
                self.homed[home] ^= self.bits[c]
            self.home[c] = NOBODY
        self.fix(c, NOBODY)

    def fix(self, c: int, worker: int) -> None:
        """Bind a candidate to one worker, or with NOBODY to none."""
        if self.pin[c] == worker:
            return
        waits = self.waits(c)
        self.stop_waiting(c)
        self.pin[c] = worker
        if waits:
            self.wait(c)

    def change(self, c: int, goal: int, closed: bool) -> None:
        """Set a candidate's goal and whether it is closed."""
        self.stop_waiting(c)
        self.lengthen(c, (goal - self.goal[c]) * self.visits)
        self.goal[c], self.closed[c] = goal, closed
        self.rank(c)
        self.wait(c)

    def step(self, stepwise: bool, homes: bool) -> None:
        """Say whether exactly one part of a candidate is next, or any that is not visited.

        Args:
            homes: whether `homed` is kept.
        """
        self._homes = homes
        self.homed = [0] * len(self.homed)
        for c, home in enumerate(self.home):
            if homes and home >= 0:
                self.homed[home] |= self.bits[c]
        waiting = [c for c in range(len(self.bits)) if self.waits(c)]
        for c in waiting:
            self.stop_waiting(c)
        self._stepwise = stepwise
        self.needs = [0] * len(self.needs)
        self.may = [0] * len(self.bits) if stepwise else self.todo
        if not stepwise:
            for c in range(len(self.bits)):
                self._need(c)
        for c in waiting:
            self.wait(c)

    def route(self, c: int) -> list[int]:
        """Return the parts of the stage that are not started, in the order of their turn."""
        todo = self.todo[c]
        if self._route is None or self.stage[c]:
            return [p for p in range(todo.bit_length()) if todo >> p & 1]
        return [p for p in self._route(c, self.epoch[c]) if todo >> p & 1]

    def _next(self, c: int, todo: Parts) -> int:
        if self._route is None or self.stage[c]:
            return following(todo, self.last[c])
        part = self._route(c, self.epoch[c])[self._train - todo.bit_count()]
        return part if todo >> part & 1 else self.route(c)[0]

    def _advance(self, c: int) -> None:
        stage = self.stage[c] + 1
        if stage == len(self._stages):
            stage = 0
            self.epoch[c] += 1
            if self.epoch[c] >= self.goal[c]:
                self.rank(c)
        self._enter(c, stage, 0)

    def _enter(self, c: int, stage: int, visited: Parts) -> None:
        self.stage[c] = stage
        self.todo[c] = self._stages[stage] & ~visited
        if not self._stepwise:
            self._need(c)

    def _need(self, c: int) -> None:
        bit, todo = self.bits[c], self.todo[c]
        for part, one in enumerate(self.bits_of_part):
            if todo & one:
                self.needs[part] |= bit


def following(parts: Parts, last: int) -> int:
    """Return the member of a set that comes after `last`, in a circle."""
    after = parts >> (last + 1)
    if after:
        return last + (after & -after).bit_length()
    return (parts & -parts).bit_length() - 1


#: Once so many hops have failed that it did together with others, a candidate hops alone for good.
MAX_APART = 3


class Bundles:
    """Which candidates share what; sets of candidates as integers with one bit a member.

    Attributes:
        members: bundle -> its candidates.
    """

    __slots__ = ("_apart", "_bundle_of", "_failed", "members")

    def __init__(self) -> None:
        self.members: dict[int, int] = {}
        self._bundle_of: dict[int, int] = {}
        self._apart = 0  # candidates that hop alone for the present
        self._failed: Counter[int] = Counter()  # hops together that failed, by candidate

    def join(self, c: int, bundle: int) -> None:
        """Put a candidate into a bundle, and out of the one that it was in."""
        before = self._bundle_of.get(c)
        if before is not None:
            self.members[before] ^= 1 << c
        self._bundle_of[c] = bundle
        self.members[bundle] = self.members.get(bundle, 0) | 1 << c

    def mates(self, c: int) -> int:
        """Return the candidates of a candidate's bundle, itself included; 0 where it has none."""
        bundle = self._bundle_of.get(c)
        return 0 if bundle is None else self.members[bundle]

    def best(self, queue: CandidateQueue, c: int, among: int, can: int) -> tuple[int, int]:
        """Return which of a candidate's bundle is to start, and the part: one that most wait for.

        Those that are furthest behind go first, so that the others are there when they validate.

        Args:
            among: candidates that a worker could take, `c` among them.
            can: parts that it finds.
        """
        mates = self.mates(c) & among & ~self._apart
        behind, group = (queue.epoch[c], queue.stage[c]), 0
        while mates:
            bit = mates & -mates
            mates ^= bit
            other = bit.bit_length() - 1
            place = (queue.epoch[other], queue.stage[other])
            if place < behind and queue.may[other] & can:
                behind, group = place, 0
            if place == behind:
                group |= bit
        found, most = -1, 0
        for part, needed in enumerate(queue.needs):
            count = (needed & group).bit_count() if can >> part & 1 else 0
            if count > most:
                found, most = part, count
        waiting = queue.needs[found] & group
        if not most or waiting >> c & 1:
            return c, found
        return (waiting & -waiting).bit_length() - 1, found

    def companions(
        self, queue: CandidateQueue, c: int, worker: int, part: int, most: int
    ) -> tuple[int, ...]:
        """Return the others of a bundle that wait for the part which a candidate has just started.

        In the same epoch, and at most `most`: those whose state the worker holds go first, then
        those with the lowest numbers. They come in the order of their numbers.
        """
        if most < 1 or self._apart >> c & 1:
            return ()
        waiting = queue.loose | queue.pinned[worker]
        found = self.mates(c) & queue.needs[part] & waiting & ~self._apart
        held = found & queue.homed[worker]
        chosen: list[int] = []
        for some in (held, found ^ held):
            while some and len(chosen) < most:
                bit = some & -some
                some ^= bit
                other = bit.bit_length() - 1
                if queue.epoch[other] == queue.epoch[c]:
                    chosen.append(other)
        return tuple(sorted(chosen))

    def part(self, candidates: Iterable[int]) -> None:
        """Let candidates whose hop together failed hop alone, so that the one at fault is found."""
        for c in candidates:
            self._apart |= 1 << c
            self._failed[c] += 1

    def hopped_alone(self, c: int) -> None:
        """Let a candidate that has done a hop alone hop together with others again."""
        if self._apart >> c & 1 and self._failed[c] < MAX_APART:
            self._apart ^= 1 << c
