"""What is asked of the zoo, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Below these a parent is refused: carrying weights over would not be worth it.
MIN_SIMILARITY, MIN_COVERAGE = 0.35, 0.2
#: Similarities are told apart by so many buckets; within one the metric decides.
BUCKETS = 20


def bucket_of(similarity: float) -> int:
    """Return the bucket of a similarity, the last one for 1.

    >>> bucket_of(0.0), bucket_of(0.7), bucket_of(1.0)
    (0, 14, 19)
    """
    return min(BUCKETS - 1, int(similarity * BUCKETS + 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentGoal:
    """What a child is to be trained for; None is not known.

    Attributes:
        task: of the dataset, as `mmdb.data.decoding.TASKS` has it.
        dataset_id: what it is to be trained on.
        metric: what it is compared by: a key of a model's metrics, such as "accuracy".
        maximize: whether more of the metric is better.
    """

    task: str | None = None
    dataset_id: int | None = None
    metric: str | None = None
    maximize: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on a parent is good enough, both from 0 to 1."""

    similarity: float = MIN_SIMILARITY
    coverage: float = MIN_COVERAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentMatch:
    """A model that was looked at as a parent.

    Attributes:
        model: name@version.
        similarity: of the architectures, 0 to 1.
        coverage: the fraction of the child's parameters that it has values for.
        accuracy: the goal's metric as it is known of the model, or the first of its own.
        metric: whose value `accuracy` is.
        dataset: what it was trained on.
        is_fit: whether it could be the parent.
        reason: why it is the parent, or is not.
        pairs: ordinals of the layers of the child's and the model's outlines that belong
            together; outlines as `mmdb.graph.ops.node_contraction` makes them.
    """

    model_id: int
    model: str
    similarity: float
    coverage: float
    accuracy: float | None
    metric: str | None
    dataset: str | None
    is_fit: bool
    reason: str
    pairs: tuple[tuple[int, int], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentChoice:
    """A parent, or why there is none.

    Attributes:
        parent: None where no model fits.
        reason: why this one, or why none.
        candidates: the models that were looked at, the parent first, then the better ones first.
        match_s: seconds that it took.
    """

    parent: ParentMatch | None
    reason: str
    candidates: tuple[ParentMatch, ...]
    match_s: float
