"""Runs, as people and BI tools see them, upon the views of their candidates."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, Json, View


class Leaderboard(View):
    """Candidates of each run, the best first."""

    __tablename__ = "leaderboard"

    run: Mapped[str | None]
    rank: Mapped[BigInt | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    config: Mapped[Json | None]
    accuracy: Mapped[float | None]
    rmse: Mapped[float | None]
    validation_loss: Mapped[float | None]
    best_epoch: Mapped[int | None]
    epochs: Mapped[int | None]
    hops: Mapped[BigInt | None]
    total_s: Mapped[float | None]
    error: Mapped[str | None]
    training_loss: Mapped[float | None]
    metric: Mapped[str | None]
    objective: Mapped[float | None]
    status: Mapped[str | None]
    candidate: Mapped[int | None]
    parent_id: Mapped[BigInt | None]
    parent: Mapped[str | None]
    similarity: Mapped[float | None]
    coverage: Mapped[float | None]
    target: Mapped[float | None]
    steps_to_target: Mapped[BigInt | None]
    cold_steps: Mapped[BigInt | None]
    steps_saved: Mapped[BigInt | None]


class RunProgress(View):
    """How far each run is; hops include validations."""

    __tablename__ = "run_progress"

    run: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str | None]
    candidates: Mapped[BigInt | None]
    failed: Mapped[BigInt | None]
    epochs: Mapped[int | None]
    hops_done: Mapped[BigInt | None]
    hops_total: Mapped[BigInt | None]
    created_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    last_hop_at: Mapped[datetime | None]
    strategy: Mapped[str | None]
    training: Mapped[BigInt | None]
    resting: Mapped[BigInt | None]
    trained: Mapped[BigInt | None]
    stopped: Mapped[BigInt | None]
    metric: Mapped[str | None]
    best_candidate_id: Mapped[BigInt | None]
    best_value: Mapped[float | None]
    hops_per_s: Mapped[float | None]
    seconds_left: Mapped[float | None]
    dataset: Mapped[str | None]


class HopTimeline(View):
    """Every hop with its phases in seconds; start-up is what reading, computing and storing leave
    over.
    """

    __tablename__ = "hop_timeline"

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    epoch: Mapped[int] = mapped_column(primary_key=True)
    ordinal: Mapped[int | None]
    role: Mapped[str | None]
    partition: Mapped[int | None]
    part_id: Mapped[BigInt] = mapped_column(primary_key=True)
    worker: Mapped[str | None]
    node: Mapped[str | None]
    device: Mapped[str | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    row_count: Mapped[BigInt | None]
    steps: Mapped[int | None]
    loss: Mapped[float | None]
    metrics: Mapped[Json | None]
    read_s: Mapped[float | None]
    load_s: Mapped[float | None]
    compute_s: Mapped[float | None]
    store_s: Mapped[float | None]
    startup_s: Mapped[float | None]
    total_s: Mapped[float | None]
    state_bytes: Mapped[BigInt | None]
    environment: Mapped[str | None]
    overhead_s: Mapped[float | None]
    metric: Mapped[str | None]
    objective: Mapped[float | None]
    peak_bytes: Mapped[BigInt | None]
    group_size: Mapped[int | None]


class RunTime(View):
    """What the workers of each run did with their time: hops and merges, by phase."""

    __tablename__ = "run_time"

    run: Mapped[str] = mapped_column(primary_key=True)
    visits: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    busy_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
