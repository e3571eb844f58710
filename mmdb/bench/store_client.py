"""One of many clients: a process that reads random tensors and prints how many it got."""

from __future__ import annotations

import json
import sys

import torch

from mmdb.api import connect
from mmdb.bench.store_access import read_at_random


def main() -> None:
    """Read the paths, say that this is ready, wait for the word, read tensors, print a report."""
    url, name, seconds, seed = sys.argv[1:]
    torch.set_num_threads(1)  # sixteen clients share a few cores
    paths = json.loads(sys.stdin.readline())

    def ready() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    with connect(url) as db:
        print(json.dumps(read_at_random(db, name, paths, float(seconds), int(seed), ready)))


if __name__ == "__main__":
    main()
