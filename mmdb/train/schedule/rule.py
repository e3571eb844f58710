"""What to do with more workers than candidates, and which strategy `auto` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mmdb.train.schedule.bound import lower_bound
from mmdb.train.schedule.layout import Placement
from mmdb.train.schedule.simulate import Seconds
from mmdb.train.schedule.workload import Workload

#: What replicas must gain over leaving workers idle, and a group over both. A group averages the
#: gradients of several batches a step: another training, so it must be worth it.
REPLICAS_GAIN, GROUP_GAIN = 0.02, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """What to do with the workers that candidates leave over."""

    choice: Literal["idle", "replicas", "group"]
    group: int  # workers of a candidate; 1 unless the choice is a group
    seconds: dict[str, float]  # lower bound of the run by choice


def fewer(
    costs: Seconds,
    slots: int | Mapping[str, int],
    *,
    placement: Placement | None = None,
    epochs: int = 1,
    copy_s: float = 0.0,
    sync_s: float = 0.0,
) -> Fewer:
    """Return what costs favour where candidates are fewer than workers.

    With t[c, p] the costs, E epochs, W workers, P partitions and g workers of a candidate:

        idle      E * max(max_c sum_p t, max_n (what only node n holds) / slots_n, sum t / W)
        replicas  copy_s + E * max(max_c sum_p t, sum t / W)
        group     E * max_c ceil(P / g) * (max_p t + sync_s), the best g <= min(P, W // M)

    The shortest is taken, if replicas gain 2 % over idle workers and a group 20 % over both.

    Args:
        costs: (M, P) expected seconds of a hop.
        slots: workers; of each node, if there are several.
        copy_s: seconds to copy every partition to every node.
        sync_s: seconds that the workers of a group spend exchanging gradients in a hop.
    """
    candidates, partitions = costs.shape
    nodes = {"": slots} if isinstance(slots, int) else slots
    workers = sum(nodes.values())
    seconds = {
        "idle": epochs * lower_bound(costs, nodes, placement or {}),
        "replicas": copy_s + epochs * lower_bound(costs, nodes, {}),
    }
    most = min(partitions, workers // max(candidates, 1))
    slowest = float(costs.max(axis=1).max(initial=0.0))
    rounds = {g: -(-partitions // g) for g in range(2, most + 1)}
    group = min(rounds, key=lambda g: (rounds[g], g), default=1)
    if group > 1:
        seconds["group"] = epochs * rounds[group] * (slowest + sync_s)
    best: Literal["idle", "replicas", "group"] = "idle"
    if seconds["replicas"] < (1 - REPLICAS_GAIN) * seconds["idle"]:
        best = "replicas"
    if group > 1 and seconds["group"] < (1 - GROUP_GAIN) * seconds[best]:
        best = "group"
    return Fewer(choice=best, group=group if best == "group" else 1, seconds=seconds)


def rule(
    load: Workload, workers: int, costs: Seconds | None = None, *, sync_s: float = 0.0
) -> tuple[str, int, str]:
    """Return the strategy that `auto` stands for, its group, and why.

    `mop`, unless candidates are fewer than workers and measured costs favour a group for each. It
    never guesses: without costs the result of a training does not depend on how many workers do it.
    """
    if load.candidates >= workers:
        return "mop", 1, f"{load.candidates} candidates keep {workers} workers busy"
    some = f"{load.candidates} candidates for {workers} workers"
    if costs is None:
        return "mop", 1, f"{some}, and no measured costs in favour of a group for each"
    found = fewer(np.asarray(costs), workers, epochs=load.epochs, sync_s=sync_s)
    if found.choice != "group":
        return "mop", 1, f"{some}, and exchanging gradients would cost more than it gains"
    gain = 1 - found.seconds["group"] / found.seconds["idle"]
    return "data_parallel", found.group, f"{some}: a group for each takes {gain:.0%} less"
