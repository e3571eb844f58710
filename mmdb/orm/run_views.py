"""Views of runs and their candidates, and of plans beside what the runs took."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import BigInt, Json, View


class OpenRun(View):
    """The runs without totals, whose hops the other views add up themselves: most have not
    finished.
    """

    run_id: Mapped[BigInt | None]
    run: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[BigInt | None]
    epochs: Mapped[int | None]
    metric: Mapped[str | None]
    maximize: Mapped[bool | None]


class _Candidate(View):
    """The columns of every view of candidates."""

    __abstract__ = True

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    parent_id: Mapped[BigInt | None]
    config: Mapped[Json | None]
    status: Mapped[str | None]
    goal: Mapped[int | None]
    epochs: Mapped[int | None]
    hops: Mapped[BigInt | None]
    total_s: Mapped[float | None]
    hops_done: Mapped[BigInt | None]
    hops_total: Mapped[BigInt | None]
    spent_s: Mapped[float | None]
    metric: Mapped[str | None]
    maximize: Mapped[bool | None]
    best_value: Mapped[float | None]
    best_epoch: Mapped[int | None]
    validation_loss: Mapped[float | None]
    metrics: Mapped[Json | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    last_hop_at: Mapped[datetime | None]
    training_loss: Mapped[float | None]
    rank: Mapped[BigInt | None]


class OpenCandidate(_Candidate):
    """The candidates of open runs, as candidate_overview shows them."""

    run_id: Mapped[BigInt | None] = mapped_column(sort_order=-1)


class CandidateOverview(_Candidate):
    """Each candidate of each run: how far it is, what it has reached and what it took."""


class CandidateProgress(View):
    """The learning curves: each epoch of each candidate."""

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    epoch: Mapped[int] = mapped_column(primary_key=True)
    hops: Mapped[BigInt | None]
    row_count: Mapped[BigInt | None]
    steps: Mapped[BigInt | None]
    training_loss: Mapped[float | None]
    validation_loss: Mapped[float | None]
    metric: Mapped[str | None]
    objective: Mapped[float | None]
    metrics: Mapped[Json | None]
    compute_s: Mapped[float | None]
    total_s: Mapped[float | None]
    trained_at: Mapped[datetime | None]
    validated_at: Mapped[datetime | None]
    best_so_far: Mapped[float | None]


class CandidateFailures(View):
    """What ended candidates before their last epoch, with the traceback."""

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    config: Mapped[Json | None]
    sqlstate: Mapped[str | None]
    message: Mapped[str | None]
    trace: Mapped[str | None]
    happened_at: Mapped[datetime] = mapped_column(primary_key=True)


class WarmStartOverview(View):
    """What candidates with a warm start began with, and the optimizer steps that it took them to
    what the best cold candidate reached.
    """

    run: Mapped[str | None]
    candidate_id: Mapped[BigInt] = mapped_column(primary_key=True)
    candidate: Mapped[int | None]
    parent: Mapped[str | None]
    similarity: Mapped[float | None]
    coverage: Mapped[float | None]
    reason: Mapped[str | None]
    lr_scale: Mapped[float | None]
    lr_epochs: Mapped[int | None]
    target: Mapped[float | None]
    steps_to_target: Mapped[BigInt | None]
    cold_steps: Mapped[BigInt | None]
    steps_saved: Mapped[BigInt | None]
    match_s: Mapped[float | None]
    transfer_s: Mapped[float | None]
    decided_at: Mapped[datetime | None]
    transfer_id: Mapped[BigInt | None]


class Leaderboard(View):
    """Candidates of each run, the best first."""

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

    run: Mapped[str] = mapped_column(primary_key=True)
    visits: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    busy_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]


class PlanOutcome(View):
    """Trained runs: what the last plan before the start said of what was done, and what it took."""

    run: Mapped[str] = mapped_column(primary_key=True)
    plan_id: Mapped[BigInt | None]
    rank: Mapped[int | None]
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    group_size: Mapped[int | None]
    planned_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    measured: Mapped[int | None]
    assumed: Mapped[bool | None]
    t_p10: Mapped[float | None]
    t_p50: Mapped[float | None]
    t_p90: Mapped[float | None]
    lower_bound: Mapped[float | None]
    actual_s: Mapped[float | None]
    error: Mapped[float | None]
    compute_s: Mapped[float | None]
    actual_compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    actual_read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    actual_hop_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    actual_validation_s: Mapped[float | None]
    idle_s: Mapped[float | None]
    actual_idle_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    peak_memory: Mapped[BigInt | None]
    hops: Mapped[BigInt | None]
    actual_hops: Mapped[BigInt | None]
    is_comparable: Mapped[bool | None]


class PlanAccuracy(View):
    """How far plans were from the runs, each in the order in which they ended, and over all so
    far.
    """

    run: Mapped[str] = mapped_column(primary_key=True)
    finished_at: Mapped[datetime | None]
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    measured: Mapped[int | None]
    assumed: Mapped[bool | None]
    t_p50: Mapped[float | None]
    actual_s: Mapped[float | None]
    error: Mapped[float | None]
    is_within: Mapped[bool | None]
    runs: Mapped[BigInt | None]
    mean_error: Mapped[float | None]
    share_within: Mapped[float | None]


class ProfileOverview(View):
    """The last measurements of each machine with its versions, by kind and size."""

    node: Mapped[str | None]
    kind: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[float] = mapped_column(primary_key=True)
    size_unit: Mapped[str | None]
    value: Mapped[float | None]
    unit: Mapped[str | None]
    per_s: Mapped[float | None]
    deviation: Mapped[float | None]
    samples: Mapped[int | None]
    measured_at: Mapped[datetime | None]
    is_old: Mapped[bool | None]
    processor: Mapped[str | None]
    torch: Mapped[str | None]
    engine: Mapped[str | None]
    fingerprint: Mapped[str] = mapped_column(primary_key=True)


class PlanOverview(View):
    """Every plan of every run: what each way of training it would take, the best first."""

    run: Mapped[str | None]
    plan_id: Mapped[BigInt] = mapped_column(primary_key=True)
    planned_at: Mapped[datetime | None]
    is_latest: Mapped[bool | None]
    simulated: Mapped[bool | None]
    assumed: Mapped[bool | None]
    candidates: Mapped[int | None]
    measured: Mapped[int | None]
    notes: Mapped[Json | None]
    rank: Mapped[int] = mapped_column(primary_key=True)
    strategy: Mapped[str | None]
    workers: Mapped[int | None]
    group_size: Mapped[int | None]
    partitions: Mapped[int | None]
    batch_size: Mapped[int | None]
    t_p10: Mapped[float | None]
    t_p50: Mapped[float | None]
    t_p90: Mapped[float | None]
    lower_bound: Mapped[float | None]
    compute_s: Mapped[float | None]
    read_s: Mapped[float | None]
    hop_s: Mapped[float | None]
    communication_s: Mapped[float | None]
    validation_s: Mapped[float | None]
    idle_s: Mapped[float | None]
    bytes_moved: Mapped[BigInt | None]
    peak_memory: Mapped[BigInt | None]
    hops: Mapped[BigInt | None]
    feasible: Mapped[bool | None]
    why_not: Mapped[str | None]
    chosen: Mapped[bool | None]
    executed: Mapped[bool | None]
