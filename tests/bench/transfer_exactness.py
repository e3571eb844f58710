"""How exactly children compute what their parents do, by kind of network and of growth.

python -m tests.bench.transfer_exactness --pairs 30

Networks are small and random, in float64; their layers are paired by their paths.
"""

from __future__ import annotations

import argparse
import time

import torch

from tests.unit.graph.transfer.carried import carry, relative_error, trained
from tests.unit.graph.transfer.pairs import CASES, random_pair

LIMIT = 1e-6  # of outputs' greatest difference, of their root mean square


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'network':22s} {'growth':12s} {'pairs':>5s} {'exact':>5s} {'worst':>8s} {'s/pair':>7s}"
    )
    missed: list[str] = []
    for family, how in CASES:
        start = time.perf_counter()
        worst, exact = 0.0, 0
        for seed in range(given.seed, given.seed + given.pairs):
            error, is_exact, reason = _error(family, how, seed)
            exact += is_exact
            if is_exact:
                worst = max(worst, error)
            if error > LIMIT or not is_exact:
                missed.append(f"{family}, {how}, seed {seed}: {error:.1e} {reason}")
        seconds = (time.perf_counter() - start) / given.pairs
        print(
            f"{family:22s} {how:12s} {given.pairs:5d} {exact:5d} {worst:8.1e} {seconds:7.3f}",
            flush=True,
        )
    print("\n".join(missed) or f"all exact, errors <= {LIMIT:g}")


def _error(family: str, how: str, seed: int) -> tuple[float, bool, str]:
    pair = random_pair(family, how, seed)
    parent, child = trained(pair.parent, seed), trained(pair.child, seed + 1)
    made = carry(child, parent, pair.inputs, seed=seed)
    error = relative_error(child, parent, pair.inputs)
    return error, made.exact, "; ".join(made.reasons[:1])


if __name__ == "__main__":
    main()
