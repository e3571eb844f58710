"""PyTorch's DistributedDataParallel over gloo: two ranks train one candidate after the other.

    python -m tests.bench.train.ddp FOLDER

The batch is the global one: each rank computes its half of it.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from time import monotonic

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.bench.train.workload import (
    LEARNING_RATES,
    WORKERS,
    Work,
    correct,
    read_work,
    train_epoch,
    warm_up,
    write_result,
)

Answer = tuple[float, float, list[float]]


def train_together(work: Work, ordinal: int, rank: int) -> float:
    """Train a candidate with the other ranks; return its last accuracy."""
    module, optimizer = work.candidate(ordinal)
    shared = DistributedDataParallel(module)
    batch, accuracy = work.workload.batch_size // WORKERS, 0.0
    for epoch in range(work.workload.epochs):
        # As DistributedSampler: one order for all ranks, dealt out in turn.
        draw = torch.Generator().manual_seed(1000 * ordinal + epoch)
        mine = torch.randperm(len(work.x), generator=draw)[rank::WORKERS]
        mine = mine[: len(work.x) // WORKERS]  # ranks take equally many steps
        train_epoch(shared, optimizer, work.x, work.y, batch, mine)
        accuracy = validate_together(module, work, rank)
    return accuracy


def validate_together(module: nn.Module, work: Work, rank: int) -> float:
    """Return the accuracy, each rank counting its share of the rows."""
    x, y = work.validation_x[rank::WORKERS], work.validation_y[rank::WORKERS]
    count = torch.tensor(correct(module, x, y))
    dist.all_reduce(count)
    return int(count) / len(work.validation_y)


def take_part(folder: Path, rank: int, answers: SimpleQueue[Answer]) -> None:
    """Train every candidate as one of the ranks."""
    torch.set_num_threads(1)
    meeting = f"file://{folder.resolve() / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORKERS)
    work = read_work(folder)
    warm_up(work)
    dist.barrier()
    started = monotonic()
    accuracies = [train_together(work, k, rank) for k in range(len(LEARNING_RATES))]
    dist.barrier()
    answers.put((started, monotonic(), accuracies))
    dist.destroy_process_group()


def main() -> None:
    """Train a folder's work and write the result beside it."""
    folder = Path(sys.argv[1])
    (folder / "meeting").unlink(missing_ok=True)
    spawning = multiprocessing.get_context("spawn")
    answers = spawning.SimpleQueue()
    processes = [
        spawning.Process(target=take_part, args=(folder, rank, answers)) for rank in range(WORKERS)
    ]
    for process in processes:
        process.start()
    found: list[Answer] = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    started, ended = min(a[0] for a in found), max(a[1] for a in found)
    write_result(folder, started, ended, found[0][2])


if __name__ == "__main__":
    main()
