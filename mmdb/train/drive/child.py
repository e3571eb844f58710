"""Worker processes of a driver outside the server: they compute hops, and open no database.

A message is a length-prefixed JSON header and a length-prefixed payload (an encoded state, or
nothing), over the child's standard input and output. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, TypeVar

from mmdb import errors
from mmdb.memory import bounded, ran_out
from mmdb.train.values.runtime import end, keep_freed_memory, trace_of, uncollected
from mmdb.train.values.spec import CandidateSpec, HopResult, HopSpec

if TYPE_CHECKING:
    from mmdb.train.compute.step_times import StepTimes
    from mmdb.train.values.feature_spec import Examined, ExamineSpec, Materialized, MaterializeSpec
    from mmdb.train.values.warm_spec import WarmResult, WarmSpec


_T = TypeVar("_T")


def _write(stream: IO[bytes], header: dict[str, Any], payload: bytes = b"") -> None:
    text = json.dumps(header).encode()
    stream.write(len(text).to_bytes(8, "little") + text + len(payload).to_bytes(8, "little"))
    stream.write(payload)
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    header = _exactly(stream, int.from_bytes(_exactly(stream, 8), "little"))
    payload = _exactly(stream, int.from_bytes(_exactly(stream, 8), "little"))
    return json.loads(header), payload


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError
    return data


def visible(device: str, shown: str | None = None) -> dict[str, str]:
    """Return the environment in which a process sees the GPU of a device alone.

    Args:
        shown: the CUDA_VISIBLE_DEVICES of this process.

    >>> visible("cuda:2"), visible("cuda:1", "4,6"), visible("cpu")
    ({'CUDA_VISIBLE_DEVICES': '2'}, {'CUDA_VISIBLE_DEVICES': '6'}, {})
    """
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index.isdigit():
        return {}
    names = dict(enumerate(shown.split(","))) if shown else {int(index): index}
    return {"CUDA_VISIBLE_DEVICES": names.get(int(index), "none")}


def inside(device: str) -> str:
    """Return the name that a device has in a process that sees no other.

    >>> inside("cuda:2"), inside("cpu")
    ('cuda:0', 'cpu')
    """
    kind, _, index = device.partition(":")
    return "cuda:0" if kind == "cuda" and index.isdigit() else device


class ChildProcess:
    """A worker process, as the process that reads and writes sees it: an `Executor`."""

    def __init__(self, device: str = "cpu") -> None:
        """Start the process; it sees no other GPU than `device`: "cpu", "cuda:0", ..."""
        self.device = device
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mmdb.train.drive.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,  # a small state goes through in one piece
            env=os.environ
            | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MIMALLOC_ARENA_RESERVE": "65536"}
            | visible(device, os.environ.get("CUDA_VISIBLE_DEVICES")),
            start_new_session=True,  # a Ctrl-C is for the owner, which then ends its children
        )
        self._held: dict[int, str] = {}
        self._partitions: set[str] = set()
        self._backbones: set[str] = set()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def warm_up(self) -> str:
        """Wait until torch is loaded; return the environment that hops will record.

        Raises:
            WorkerLost, DeviceMissing
        """
        try:
            header, _ = self._call({"call": "warm_up", "device": inside(self.device)})
        except errors.DeviceMissing as error:
            raise errors.DeviceMissing(
                f"Device {self.device!r}: {error.message}", hint=error.hint
            ) from error
        return str(header["environment"])

    def held(self, candidate_id: int) -> str | None:
        """Return the hash in hex of the candidate's state that the child holds live."""
        return self._held.get(candidate_id)

    def has_partition(self, key: str) -> bool:
        """Return whether the child has the partition mapped."""
        return key in self._partitions

    def map_partition(self, key: str) -> None:
        """Let the child map a partition that is in the node's cache."""
        self._call({"call": "map_partition", "key": key})
        self._partitions.add(key)

    def perform(self, spec: HopSpec, state: bytes | None) -> tuple[HopResult, bytes | None]:
        """Let the child compute a hop; see `DeviceWorker.perform`."""
        candidate_id = spec.candidate.candidate_id
        self._held.pop(candidate_id, None)
        call = {"call": "perform", "spec": spec.to_json(), "state": state is not None}
        begun = perf_counter()
        header, payload = self._call(call, state or b"")
        result = replace(HopResult(**header["result"]), device=self.device)
        self._held = {int(k): v for k, v in header["held"].items()}
        if not header["state"]:
            return result, None
        # What the child's phases leave over is the state on its way here: part of storing it.
        phases_s = result.load_s + result.compute_s + result.encode_s
        moved_s = perf_counter() - begun - phases_s
        return replace(result, encode_s=result.encode_s + moved_s), payload

    def has_backbone(self, name: str) -> bool:
        """Return whether the child has the tensors of a model whose layers are frozen."""
        return name in self._backbones

    def take_backbone(self, name: str, tensors: bytes) -> None:
        """Let the child keep the tensors of a model; see `DeviceWorker.take_backbone`."""
        header, _ = self._call({"call": "take_backbone", "name": name}, tensors)
        self._backbones = set(header["backbones"])

    def materialize(self, spec: MaterializeSpec) -> Materialized:
        """Let the child compute features; see `DeviceWorker.materialize`."""
        from mmdb.train.values.feature_spec import Materialized

        header, _ = self._call({"call": "materialize", "spec": spec.to_json()})
        return Materialized(**header["result"])

    def examine(self, spec: ExamineSpec) -> Examined:
        """Let the child look at frozen layers; see `DeviceWorker.examine`."""
        from mmdb.train.values.feature_spec import Examined, FrozenPrefix

        header, _ = self._call({"call": "examine", "spec": spec.to_json()})
        prefixes = tuple(FrozenPrefix.from_json(one) for one in header["prefixes"])
        return Examined(prefixes=prefixes, environment=header["environment"])

    def average(self, states: Sequence[bytes], rows: Sequence[int]) -> tuple[str, bytes]:
        """Let the child average states; see `DeviceWorker.average`."""
        sizes = [len(state) for state in states]
        call = {"call": "average", "sizes": sizes, "rows": list(rows)}
        header, mean = self._call(call, b"".join(states))
        return str(header["hash"]), mean

    def warm_start(self, spec: WarmSpec, tensors: bytes) -> tuple[WarmResult, bytes]:
        """Let the child make what a candidate begins with; see `DeviceWorker.warm_start`."""
        from mmdb.train.values.warm_spec import WarmResult  # imports torch

        header, state = self._call({"call": "warm_start", "spec": spec.to_json()}, tensors)
        return WarmResult.from_json(header["result"]), state

    def time_steps(self, candidate: CandidateSpec, partition: str, budget_s: float) -> StepTimes:
        """Let the child time steps; see `DeviceWorker.time_steps`."""
        from mmdb.train.compute.step_times import StepTimes  # imports torch

        call = {"call": "time_steps", "candidate": asdict(candidate), "partition": partition}
        header, _ = self._call(call | {"budget_s": budget_s})
        return StepTimes(**header["times"])

    def follow(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        """Run the replay of a recipe in this process, which has the database."""
        return work(lambda: False)

    def _call(self, header: dict[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin and self._process.stdout
        try:
            _write(self._process.stdin, header, payload)
            answer, data = _read(self._process.stdout)
        except (OSError, EOFError, ValueError) as error:
            raise errors.WorkerLost(f"Worker process {self.pid} ended in mid-hop.") from error
        if "sqlstate" in answer:
            known = errors.from_sqlstate(answer["sqlstate"], answer["message"], answer["hint"])
            assert known is not None
            if isinstance(known, errors.TrainingFailed):
                known.trace = answer["trace"]
            raise known
        return answer, data

    def kill(self) -> None:
        """End the process while another thread waits for it, which gets `WorkerLost`."""
        self._process.kill()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        end(self._process)


def main() -> None:
    """Serve calls until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a KeyboardInterrupt is then a user's module's
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's module prints must not end up among the messages
    keep_freed_memory()
    serve = _ServedChild()
    while True:
        try:
            header, payload = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            with bounded():
                answer = serve(header, payload)
            _write(out, *answer)
        except errors.MmdbError as error:
            _write(out, _answer(error))
        except BaseException as error:  # else a user's module would end the process
            if errors.stops_the_caller(error):
                raise
            if ran_out(error):
                _write(out, _answer(errors.OutOfMemory()))
                continue
            failed = errors.TrainingFailed(f"{type(error).__name__}: {error}")
            failed.trace = trace_of(error)
            _write(out, _answer(failed))


def _answer(error: errors.MmdbError) -> dict[str, Any]:
    said = {"sqlstate": error.sqlstate, "message": error.message, "hint": error.hint}
    return said | {"trace": trace_of(error)}


class _ServedChild:
    """The child's session, which it makes when it is told its device."""

    def __init__(self) -> None:
        self._session: Any = None

    def __call__(self, header: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        if header["call"] == "warm_up":
            return {"environment": self._warm_up(header["device"])}, b""
        if header["call"] == "map_partition":
            self._session.map_partition(header["key"])
            return {}, b""
        if header["call"] == "average":
            sizes, ends = header["sizes"], accumulate(header["sizes"])
            states = [payload[end - size : end] for end, size in zip(ends, sizes, strict=True)]
            name, mean = self._session.average(states, header["rows"])
            return {"hash": name}, mean
        if header["call"] == "time_steps":
            candidate = CandidateSpec.from_json(header["candidate"])
            asked = header["partition"], header["budget_s"]
            return {"times": asdict(self._session.time_steps(candidate, *asked))}, b""
        if header["call"] == "warm_start":
            return self._warm_start(header["spec"], payload)
        if header["call"] in ("take_backbone", "materialize", "examine"):
            return self._features(header, payload), b""
        spec = HopSpec.from_json(header["spec"])
        result, state = self._session.perform(spec, payload if header["state"] else None)
        held = self._session.all_held()
        return {"result": asdict(result), "state": state is not None, "held": held}, state or b""

    def _warm_start(self, spec: str, tensors: bytes) -> tuple[dict[str, Any], bytes]:
        from mmdb.train.values.warm_spec import WarmSpec

        result, state = self._session.warm_start(WarmSpec.from_json(spec), tensors)
        return {"result": result.to_json()}, state

    def _features(self, header: dict[str, Any], payload: bytes) -> dict[str, Any]:
        from mmdb.train.values.feature_spec import ExamineSpec, MaterializeSpec

        if header["call"] == "take_backbone":
            self._session.take_backbone(header["name"], payload)
            return {"backbones": self._session.backbone_names()}
        if header["call"] == "materialize":
            spec = MaterializeSpec.from_json(header["spec"])
            return {"result": asdict(self._session.materialize(spec))}
        found = self._session.examine(ExamineSpec.from_json(header["spec"]))
        return asdict(found)

    def _warm_up(self, device: str) -> str:
        with uncollected():
            from mmdb.train.hops.device_worker import DeviceWorker, warm_up

            if self._session is None:
                self._session = DeviceWorker(device)
            return warm_up(self._session.device)


if __name__ == "__main__":
    main()
