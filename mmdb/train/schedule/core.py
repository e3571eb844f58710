"""Who does what next. The schedule and the simulation both decide with this code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from mmdb.train.schedule.candidate_queue import Bundles, CandidateQueue, Route, following
from mmdb.train.schedule.places import Places, form_groups, ring_of
from mmdb.train.schedule.workload import NOBODY, Parts, Strategy, Workload, strategy_of
from mmdb.train.values.seeds import MERGE, VALIDATION, visit_order

#: rotation: a candidate goes round the parts, and waits for the one that is next.
#: longest: an idle worker takes the candidate that needs longest of those that it can serve.
#: affinity: the same, but a state stays with its worker while there is slack.
Policy = Literal["rotation", "longest", "affinity"]
POLICIES: tuple[Policy, ...] = ("affinity", "longest", "rotation")

#: (candidate, worker, part)
Start = tuple[int, int, int]


class Core:
    """Matches candidates that wait with workers that are idle; numbers throughout."""

    def __init__(
        self,
        strategy: Strategy,
        stages: Sequence[Parts],
        partitions: int,
        places: Places,
        policy: Policy,
        route: Route | None = None,
    ) -> None:
        """Begin without candidates and workers.

        Args:
            stages: the stages of an epoch; train parts are 0 to `partitions` - 1.
            route: the order of a candidate's train parts; None where any may be next.
        """
        self.places, self.strategy = places, strategy
        self.queue = CandidateQueue(strategy, stages, partitions, route)
        self.bundles = Bundles()
        self.crew = 0  # workers that are up
        self.warm: list[Parts] = []  # of each worker: parts that it has mapped
        self._fixed = route is not None
        self._freed: list[int] = []  # workers offered since the last decision
        self._current: list[int] = []  # of each worker: the candidate of its last hop
        self.policy: Policy = policy
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Decide by another policy from now on."""
        self.policy = policy
        self._sticky = policy == "affinity"
        one = self.strategy.alone and self.strategy.group == 1
        self.queue.step(one and (self._fixed or policy == "rotation"), self._sticky)

    def add_worker(self, node: int) -> int:
        """Add a worker that is not idle; return its number."""
        self.warm.append(0)
        self._current.append(-1)
        self.queue.add_worker()
        return self.places.add_worker(node)

    def offer(self, worker: int) -> None:
        """Say that a worker is idle."""
        self._freed.append(worker)

    def withdraw(self, worker: int) -> None:
        """Say that a worker that was idle is not to be had."""
        if worker in self.places.idle:
            self.places.wake(worker)

    def done(self, c: int, worker: int, part: int) -> None:
        """Say that a worker has done a part."""
        if self._sticky:
            self.warm[worker] |= 1 << part
            self._current[worker] = c
        self.queue.done(c, worker, part)

    def decide(self, begun: int = 0) -> list[Start]:
        """Start whatever can start now; those that start are busy from now on.

        The members of a group follow one another, rank 0 first.

        Args:
            begun: candidates of the bundles that are under way: other workers begin with others.
        """
        starts: list[Start] = []
        if self.strategy.group > 1:
            for worker in self._freed:
                self.places.rest(worker)
            size, rests = self.strategy.group, len(self.places.idle) == self.crew
            form_groups(self.queue, self.places, size, self._fixed, starts, rests=rests)
        else:
            if self.places.idle:
                self._spread(starts)
            self._serve(starts, begun)
        self.queue.opened.clear()
        self._freed.clear()
        return starts

    def slack_s(self) -> float:
        """Return by how many seconds the workers' fair share exceeds the longest candidate."""
        queue = self.queue
        return queue.load_s / max(self.crew, 1) - queue.ranks.longest_s

    def epoch_s(self, c: int) -> float:
        """Return the predicted seconds of an epoch of a candidate."""
        return self.queue.visits * self.queue.weight[c]

    def _spread(self, starts: list[Start]) -> None:
        """Send candidates that have just begun to wait to workers that have been idle before."""
        queue, places, alone = self.queue, self.places, self.strategy.alone
        for c in queue.opened:
            while parts := queue.may[c] & places.open_parts:
                if not queue.waits(c) or (worker := self._idle_for(c, parts)) < 0:
                    break
                places.wake(worker)
                self._start(c, worker, starts)
                if alone:
                    break

    def _idle_for(self, c: int, parts: Parts) -> int:
        """Return an idle worker for a candidate that could start `parts`, or NOBODY."""
        queue, places = self.queue, self.places
        home, pin = queue.home[c], queue.pin[c]
        if home >= 0:
            can = places.can[places.node_of[home]]
            if home in places.idle:
                if parts & can:
                    return home
            elif self.strategy.alone and home in self._freed and queue.may[c] & can:
                if self._eligible(home) == queue.bits[c]:
                    return NOBODY  # its own worker is free again, and nobody else could use it
        if pin >= 0:
            able = pin in places.idle and parts & places.can[places.node_of[pin]]
            return pin if able else NOBODY
        return places.idle_at(following(parts, queue.last[c]))

    def _serve(self, starts: list[Start], begun: int) -> None:
        """Give workers that have just become idle the best of what waits."""
        if self._sticky and len(self._freed) > 1:  # first those that hold what waits
            waiting, homed = self.queue.loose, self.queue.homed
            self._freed.sort(key=lambda worker: not homed[worker] & waiting)
        for worker in self._freed:
            among = self._eligible(worker)
            if among:
                if begun:
                    among = among & ~begun or among
                last = among.bit_length() - 1
                c = last if among == self.queue.bits[last] else self._pick(among, worker)
                part = NOBODY
                if self.bundles.members:
                    begun |= self.bundles.mates(c)
                    can = self.places.can[self.places.node_of[worker]]
                    c, part = self.bundles.best(self.queue, c, among, can)
                self._start(c, worker, starts, part)
            else:
                self.places.rest(worker)

    def _eligible(self, worker: int) -> int:
        """Return the set of candidates that a worker could take."""
        queue, places = self.queue, self.places
        waiting, mine = queue.loose, queue.pinned[worker]
        if mine:
            waiting = mine if self.strategy.stays else waiting | mine
        if places.everywhere or not waiting:
            return waiting
        parts, needs = places.parts_of[places.node_of[worker]], queue.needs
        if len(parts) == 1:
            return waiting & needs[parts[0]]
        found = 0
        for part in parts:
            found |= needs[part]
        return waiting & found

    def _pick(self, among: int, worker: int) -> int:
        queue = self.queue
        best = queue.ranks.top(among)
        mine = among & queue.homed[worker] if self._sticky else 0
        if not mine:
            return best
        c = self._current[worker]
        if c < 0 or not mine & queue.bits[c]:
            c = queue.ranks.top(mine)
        under_way = queue.left[c] % queue.visits
        if under_way and self.slack_s() >= self.epoch_s(c):
            return c
        # Moving a state must gain more than two of its hops.
        gain = 2 * queue.weight[c]
        return c if queue.remaining_s(c) + gain >= queue.remaining_s(best) else best

    def _start(self, c: int, worker: int, starts: list[Start], part: int = NOBODY) -> None:
        """Start a candidate on a worker: on `part`, or with NOBODY on one that is best for it."""
        queue, places = self.queue, self.places
        node = places.node_of[worker]
        first, *others = places.parts_of[node]
        if part < 0 and not others:
            part = first
        elif part < 0:
            parts = queue.may[c] & places.can[node]
            part = following(parts & self.warm[worker] or parts, queue.last[c])
        queue.start(c, part)
        if self.strategy.stays:
            queue.fix(c, worker)
        starts.append((c, worker, part))


#: Part ordinal -> the nodes that hold it; a part that is missing is found on every node.
Placement = Mapping[int, frozenset[str]]


class RunLayout:
    """Part ordinals and node names as the numbers of a core.

    Train parts are numbered in the order in which candidates rotate through them.
    """

    def __init__(self, load: Workload, placement: Placement) -> None:
        ring = ring_of(placement, load.partitions)
        self.ordinals = (*ring, MERGE, VALIDATION)
        self.part_of = {ordinal: part for part, ordinal in enumerate(self.ordinals)}
        self.node_of: dict[str, int] = {}
        self.used = 0  # set of the parts that an epoch has
        self._load, self._placement = load, placement
        self._base: dict[int, tuple[int, ...]] = {}  # epoch -> candidate 0's order

    def core(self, policy: Policy) -> Core:
        """Return a core without candidates and workers."""
        load = self._load
        # No worker finds all partitions where they lie on nodes: what would stay hops.
        hops = load.strategy == "task" and bool(self._placement)
        strategy = strategy_of("mop" if hops else load.strategy, load.group)
        train, merge = (1 << load.partitions) - 1, 1 << load.partitions
        stages = strategy.stages(train, merge, merge << 1 if load.validates else 0)
        placed = self.set_of(self._placement)
        self.used = sum(stages)
        places = Places(self.used & ~placed, not self.used & placed)
        route = None if load.free else self.route
        return Core(strategy, stages, load.partitions, places, policy, route)

    def node(self, core: Core, name: str) -> int:
        """Return the number of a node, which is added when it is first seen."""
        if core.places.everywhere:
            name = ""  # one node is as good as another
        if name not in self.node_of:
            held = [self.part_of[o] for o, nodes in self._placement.items() if name in nodes]
            held = [part for part in held if self.used >> part & 1]
            self.node_of[name] = core.places.add_node(held)
        return self.node_of[name]

    def set_of(self, ordinals: Sequence[int] | Mapping[int, object]) -> int:
        """Return part ordinals as a set of parts."""
        return sum(1 << self.part_of[ordinal] for ordinal in ordinals)

    def route(self, candidate: int, epoch: int) -> list[int]:
        """Return the parts in the order of `visit_order`."""
        load = self._load
        if epoch not in self._base:
            if len(self._base) > 64:
                self._base.clear()
            order = visit_order(load.seed, 0, epoch, load.partitions)
            self._base[epoch] = tuple(self.part_of[ordinal] for ordinal in order)
        base, start = self._base[epoch], (load.first + candidate) % load.partitions
        return [*base[start:], *base[:start]]


class Crew:
    """Worker names as the numbers of a core."""

    def __init__(self, core: Core, layout: RunLayout) -> None:
        self._core, self._layout = core, layout
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        self.node_of: dict[str, str] = {}  # of the workers that are up

    def enlist(self, worker: str, node: str) -> None:
        """Note that a worker is up, on a node, with a fresh session."""
        place = self._layout.node(self._core, node)
        if worker not in self.numbers:
            self.numbers[worker] = self._core.add_worker(place)
            self.names.append(worker)
        number = self.numbers[worker]
        self._core.withdraw(number)
        self._core.places.node_of[number] = place
        self._core.warm[number] = 0
        self.node_of[worker] = node
        self._core.crew = len(self.node_of)

    def dismiss(self, worker: str) -> int | None:
        """Note that a worker is not up; return its number if it ever was."""
        self.node_of.pop(worker, None)
        self._core.crew = len(self.node_of)
        number = self.numbers.get(worker)
        if number is not None:
            self._core.withdraw(number)
        return number

    def offer(self, idle: Iterable[str]) -> None:
        """Say which workers, and no others, may be given something to do."""
        for worker in idle:
            if worker not in self.node_of:
                self.enlist(worker, "")
        offered = dict.fromkeys(self.numbers[w] for w in idle)
        resting = self._core.places.idle
        for number in [n for n in resting if n not in offered]:
            self._core.withdraw(number)
        for number in offered:
            if number not in resting:
                self._core.offer(number)

    def slots(self) -> Counter[str]:
        """Return how many workers are up on each node."""
        return Counter(self.node_of.values())
