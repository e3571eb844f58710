"""Who does what next. The schedule and the simulation both decide with this code.

It keeps the invariants of Model Hopper Parallelism (Cerebro, PVLDB 13(11) 2020, section 3): every
candidate visits every part exactly once an epoch, it is in one place at a time, a worker runs one
hop at a time, and a hop is not pre-empted. There is no barrier, inside an epoch or between epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mmdb.train.schedule.backlog import NOBODY
from mmdb.train.schedule.bundles import Bundles
from mmdb.train.schedule.groups import form_groups
from mmdb.train.schedule.places import Places
from mmdb.train.schedule.standing import Route, Standing, following
from mmdb.train.schedule.strategy import Parts, Strategy

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
        self.standing = Standing(strategy, stages, partitions, route)
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
        self.standing.step(one and (self._fixed or policy == "rotation"), self._sticky)

    def add_worker(self, node: int) -> int:
        """Add a worker that is not idle; return its number."""
        self.warm.append(0)
        self._current.append(-1)
        self.standing.add_worker()
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
        self.standing.done(c, worker, part)

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
            form_groups(self.standing, self.places, self.strategy.group, self._fixed, starts)
        else:
            if self.places.idle:
                self._spread(starts)
            self._serve(starts, begun)
        self.standing.opened.clear()
        self._freed.clear()
        return starts

    def slack_s(self) -> float:
        """Return by how many seconds the workers' fair share exceeds the longest candidate."""
        standing = self.standing
        return standing.load_s / max(self.crew, 1) - standing.ranks.longest_s

    def epoch_s(self, c: int) -> float:
        """Return the predicted seconds of an epoch of a candidate."""
        return self.standing.visits * self.standing.weight[c]

    def _spread(self, starts: list[Start]) -> None:
        """Send candidates that have just begun to wait to workers that have been idle before."""
        standing, places, alone = self.standing, self.places, self.strategy.alone
        for c in standing.opened:
            while parts := standing.may[c] & places.open_parts:
                if not standing.waits(c) or (worker := self._idle_for(c, parts)) < 0:
                    break
                places.wake(worker)
                self._start(c, worker, starts)
                if alone:
                    break

    def _idle_for(self, c: int, parts: Parts) -> int:
        """Return an idle worker for a candidate that could start `parts`, or NOBODY."""
        standing, places = self.standing, self.places
        home, pin = standing.home[c], standing.pin[c]
        if home >= 0:
            can = places.can[places.node_of[home]]
            if home in places.idle:
                if parts & can:
                    return home
            elif self.strategy.alone and home in self._freed and standing.may[c] & can:
                if self._eligible(home) == standing.bits[c]:
                    return NOBODY  # its own worker is free again, and nobody else could use it
        if pin >= 0:
            able = pin in places.idle and parts & places.can[places.node_of[pin]]
            return pin if able else NOBODY
        return places.idle_at(following(parts, standing.last[c]))

    def _serve(self, starts: list[Start], begun: int) -> None:
        """Give workers that have just become idle the best of what waits."""
        if self._sticky and len(self._freed) > 1:  # first those that hold what waits
            waiting, homed = self.standing.loose, self.standing.homed
            self._freed.sort(key=lambda worker: not homed[worker] & waiting)
        for worker in self._freed:
            among = self._eligible(worker)
            if among:
                if begun:
                    among = among & ~begun or among
                last = among.bit_length() - 1
                c = last if among == self.standing.bits[last] else self._pick(among, worker)
                part = NOBODY
                if self.bundles.members:
                    begun |= self.bundles.mates(c)
                    can = self.places.can[self.places.node_of[worker]]
                    c, part = self.bundles.best(self.standing, c, among, can)
                self._start(c, worker, starts, part)
            else:
                self.places.rest(worker)

    def _eligible(self, worker: int) -> int:
        """Return the set of candidates that a worker could take."""
        standing, places = self.standing, self.places
        waiting, mine = standing.loose, standing.pinned[worker]
        if mine:
            waiting = mine if self.strategy.stays else waiting | mine
        if places.everywhere or not waiting:
            return waiting
        parts, needs = places.parts_of[places.node_of[worker]], standing.needs
        if len(parts) == 1:
            return waiting & needs[parts[0]]
        found = 0
        for part in parts:
            found |= needs[part]
        return waiting & found

    def _pick(self, among: int, worker: int) -> int:
        standing = self.standing
        best = standing.ranks.top(among)
        mine = among & standing.homed[worker] if self._sticky else 0
        if not mine:
            return best
        c = self._current[worker]
        if c < 0 or not mine & standing.bits[c]:
            c = standing.ranks.top(mine)
        under_way = standing.left[c] % standing.visits
        if under_way and self.slack_s() >= self.epoch_s(c):
            return c
        # Moving a state must gain more than two of its hops.
        gain = 2 * standing.weight[c]
        return c if standing.remaining_s(c) + gain >= standing.remaining_s(best) else best

    def _start(self, c: int, worker: int, starts: list[Start], part: int = NOBODY) -> None:
        """Start a candidate on a worker: on `part`, or with NOBODY on one that is best for it."""
        standing, places = self.standing, self.places
        node = places.node_of[worker]
        first, *others = places.parts_of[node]
        if part < 0 and not others:
            part = first
        elif part < 0:
            parts = standing.may[c] & places.can[node]
            part = following(parts & self.warm[worker] or parts, standing.last[c])
        standing.start(c, part)
        if self.strategy.stays:
            standing.fix(c, worker)
        starts.append((c, worker, part))
