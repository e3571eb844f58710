"""Heads trained without mmdb's hops: a plain PyTorch loop over features, or from end to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mmdb.api import Run
from mmdb.bench.figures import one_thread, seconds_of
from mmdb.data import node_cache
from mmdb.data.feature_files import unpack_features
from mmdb.data.reader import read_partition
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.store import stored_features
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.feature_pass import features_of
from mmdb.train.compute.live import build
from mmdb.train.features.prefix_groups import partition_key
from mmdb.train.hops.turn import ordinal_of
from mmdb.train.values.seeds import VALIDATION, hop_seed, visit_order
from mmdb.train.values.spec import CandidateSpec
from tests.bench.feature.subject import BATCH, OPTIMIZER, Subject

#: Ordinal of a partition -> its rows and their labels.
Parts = dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A candidate of a run, and the partitions that it trains on."""

    row: Row  # of `find_candidate`
    spec: CandidateSpec
    parts: tuple[Row, ...]

    @property
    def cut(self) -> str:
        """Path of the last frozen module."""
        assert self.spec.frozen is not None
        return self.spec.frozen.cut


class Alone:
    """Trains candidates of a run one by one, in this process and on one thread."""

    def __init__(self, subject: Subject, run: Run) -> None:
        """Read what the run's candidates are."""
        self._connection = subject.database.connection
        self._backbones = Backbones()
        self._features: dict[str, tuple[Parts, bool]] = {}
        factories = self._connection.rows(load("catalog").find_factories)
        targets = {row["name"]: row["target"] for row in factories}
        self.heads = []
        for candidate in subject.candidates(run):
            given = {"candidate_id": candidate["candidate_id"]}
            (row,) = self._connection.rows(load("hops").find_candidate, **given)
            parts = self._connection.rows(
                load("hops").find_partitions, dataset_id=row["dataset_id"]
            )
            spec = CandidateSpec.from_row(row, targets)
            train = tuple(part for part in parts if ordinal_of(part) != VALIDATION)
            self.heads.append(Head(row=row, spec=spec, parts=train))

    def on_features(self, head: Head) -> dict[str, Tensor]:
        """Return the weights of a head that a plain loop trains on materialised features."""
        parts, _ = self.features(head)
        with one_thread():
            module = build(head.spec, backbones=self._backbones).module
            _train(module, module, head, parts)
        return module.state_dict()

    def end_to_end(self, head: Head) -> dict[str, Tensor]:
        """Return the weights of a head that a plain loop trains behind the frozen layers."""
        assert head.spec.frozen is not None
        spec = replace(head.spec, frozen=replace(head.spec.frozen, choice="streamed"))
        with one_thread():
            live = build(spec, backbones=self._backbones)
            layers, module = live.frozen, live.module
            assert layers is not None

            def whole(x: Tensor) -> Tensor:
                with torch.no_grad():
                    features = layers(x)
                found: Tensor = module(features)
                return found

            _train(whole, module, head, self._raw(head))
        return module.state_dict()

    def features(self, head: Head) -> tuple[Parts, bool]:
        """Return a head's features as the run left them, and whether they are as computed here.

        Where the run has left none that this process can see, they are those computed here.
        """
        key = bytes(head.row["feature_key"]).hex()
        if key not in self._features:
            parts, same = {}, True
            raw = self._raw(head)
            for part in head.parts:
                x, y = raw[ordinal_of(part)]
                computed = self._computed(head, x)
                left = self._left(head, part)
                same = same and (left is None or torch.equal(left, computed))
                parts[ordinal_of(part)] = (computed if left is None else left), y
            self._features[key] = parts, same
        return self._features[key]

    def feature_seconds(self, head: Head) -> float:
        """Return the seconds in which this process computes the features of a head's first part."""
        x, _ = self._raw(head)[0]
        return seconds_of(lambda: self._computed(head, x))

    def _computed(self, head: Head, x: Tensor) -> Tensor:
        frozen = head.spec.frozen
        assert frozen is not None
        layers = self._backbones.of(head.spec).prefix(frozen.cut, frozen.pool)
        with one_thread():
            return features_of(layers, x, frozen.storage)

    def _left(self, head: Head, part: Row) -> Tensor | None:
        """Return the features of a partition out of the database, or out of this node's cache."""
        row, source = head.row, bytes(part["content_hash"])
        (known,) = stored_features.find(
            self._connection,
            row["dataset_id"],
            stored_features.owner_of(self._connection, row["run_id"]),
            [bytes(row["feature_key"])],
        ).values()
        place = self._connection, known.feature_id, part["part_id"]
        blocks = list(stored_features.read_blocks(*place))
        if blocks:
            arrays = [unpack_features(block, known.shape, known.storage) for block in blocks]
            return torch.cat([torch.from_numpy(array) for array in arrays])
        try:
            key = partition_key(bytes(row["feature_key"]), known.owner, source)
            return torch.from_numpy(node_cache.map(key).input_arrays[0]).clone()
        except node_cache.NotCached:
            return None

    def _raw(self, head: Head) -> Parts:
        found = {}
        for part in head.parts:
            decoded = read_partition(self._connection, part["part_id"], bytes(part["content_hash"]))
            x, y = decoded.plain
            found[ordinal_of(part)] = torch.from_numpy(x).clone(), torch.from_numpy(y).clone()
        return found


def _train(
    forward: Callable[[Tensor], Tensor] | nn.Module, module: nn.Module, head: Head, parts: Parts
) -> None:
    """Train a module in place, in the order and with the seeds of the candidate's hops."""
    seed, ordinal = head.row["run_seed"], head.row["ordinal"]
    optimizer = torch.optim.SGD(module.parameters(), lr=float(OPTIMIZER["lr"]))  # type: ignore[arg-type]
    criterion = nn.CrossEntropyLoss()
    module.train()
    with torch.random.fork_rng(devices=[]):
        for epoch in range(head.row["epochs"]):
            for part in visit_order(seed, ordinal, epoch, len(parts)):
                x, y = parts[part]
                torch.manual_seed(hop_seed(seed, ordinal, epoch, part))
                for index in torch.randperm(len(x)).split(BATCH):
                    optimizer.zero_grad()
                    criterion(forward(x[index]), y[index]).backward()
                    optimizer.step()
