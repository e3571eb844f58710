"""A plain loop over candidates in two processes, each with its half of them and all rows.

python -m tests.bench.train.loop FOLDER
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import monotonic

import torch

from tests.bench.train.workload import (
    LEARNING_RATES,
    WORKERS,
    read_work,
    train_candidate,
    warm_up,
    write_result,
)

Answer = tuple[float, float, dict[int, float]]  # started, ended, accuracy by candidate


def work_through(folder: Path, rank: int, together: Barrier, answers: SimpleQueue[Answer]) -> None:
    """Train every WORKERS-th candidate; begin when all processes are warm."""
    torch.set_num_threads(1)
    work = read_work(folder)
    warm_up(work)
    together.wait()
    started = monotonic()
    mine = range(rank, len(LEARNING_RATES), WORKERS)
    accuracies = {ordinal: train_candidate(work, ordinal) for ordinal in mine}
    answers.put((started, monotonic(), accuracies))


def main() -> None:
    """Train a folder's work and write the result beside it."""
    folder = Path(sys.argv[1])
    spawning = multiprocessing.get_context("spawn")
    together, answers = spawning.Barrier(WORKERS), spawning.SimpleQueue()
    processes = [
        spawning.Process(target=work_through, args=(folder, rank, together, answers))
        for rank in range(WORKERS)
    ]
    for process in processes:
        process.start()
    found: list[Answer] = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    accuracies = {k: v for _, _, mine in found for k, v in mine.items()}
    write_result(
        folder,
        min(started for started, _, _ in found),
        max(ended for _, ended, _ in found),
        [accuracies[k] for k in sorted(accuracies)],
    )


if __name__ == "__main__":
    main()
