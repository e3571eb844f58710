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
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import IO, Any, TypeVar

from mmdb import errors
from mmdb.memory import bounded, shortage
from mmdb.train.drive.idle_children import IDLE
from mmdb.train.values import device_names
from mmdb.train.values.jobs import Job, MapPartition, from_json, job_of
from mmdb.train.values.runtime import end, keep_freed_memory, trace_of, uncollected
from mmdb.train.values.spec import HopResult, HopSpec, Payload, Stopped

_T = TypeVar("_T")
_R = TypeVar("_R")


def _write(stream: IO[bytes], header: dict[str, Any], payload: Payload = ()) -> None:
    text, size = json.dumps(header).encode(), sum(map(len, payload))
    stream.write(len(text).to_bytes(8, "little") + text + size.to_bytes(8, "little"))
    for piece in payload:
        stream.write(piece)
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


class ChildProcess:
    """A worker process, as the process that reads and writes sees it: an `Executor`."""

    def __init__(self, device: str = "cpu") -> None:
        """Start the process; it sees no other accelerator than `device`."""
        self.device = device
        paths = os.pathsep.join(p for p in sys.path if p)
        self._kind = (device, paths, str(Path.cwd()))
        self._environment = (
            os.environ
            | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MIMALLOC_ARENA_RESERVE": "65536"}
            | device_names.visible(device, dict(os.environ))
        )
        self._calls = threading.Lock()  # held while the process answers
        self._waits = False  # whether it is known to wait for calls
        self._process = IDLE.take(self._kind) or subprocess.Popen(
            [sys.executable, "-m", "mmdb.train.drive.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,  # a small state goes through in one piece
            env=self._environment,
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
        asked = {"warm_up": device_names.inside(self.device), "environment": self._environment}
        try:
            header, _ = self._call(asked)
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

    def has_backbone(self, name: str) -> bool:
        """Return whether the child has the tensors of a model whose layers are frozen."""
        return name in self._backbones

    def compute(self, job: Job[_R], payload: Payload = ()) -> tuple[_R, bytes | None]:
        """Let the child run a job."""
        asked: Any = job
        if isinstance(asked, HopSpec):  # what is left half done is held by nobody
            self._held.pop(asked.candidate.candidate_id, None)
        sizes = [len(one) for one in payload]
        call = {"job": type(job).__name__, "spec": asdict(asked), "sizes": sizes}
        begun = perf_counter()
        header, left = self._call(call, payload)
        self._held = {int(k): v for k, v in header["held"].items()}
        self._backbones = set(header["backbones"])
        if isinstance(asked, MapPartition):
            self._partitions.add(asked.key)
        result = from_json(job.result, header["result"])
        if isinstance(result, HopResult):
            result = self._placed(result, perf_counter() - begun if header["leaves"] else None)
        return result, left if header["leaves"] else None

    def _placed(self, result: HopResult, passed_s: float | None) -> HopResult:
        """Return a result as of this device, the state's way here being part of its encoding."""
        here = replace(result, device=self.device)
        if passed_s is None:
            return here
        phases_s = result.load_s + result.compute_s + result.encode_s
        return replace(here, encode_s=result.encode_s + passed_s - phases_s)

    def follow(self, work: Callable[[Stopped], _T]) -> _T:
        """Run the replay of a recipe in this process, which has the database."""
        return work(lambda: False)

    def _call(self, header: dict[str, Any], payload: Payload = ()) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin and self._process.stdout
        with self._calls:
            self._waits = False
            try:
                _write(self._process.stdin, header, payload)
                answer, data = _read(self._process.stdout)
            except (OSError, EOFError, ValueError) as error:
                raise errors.WorkerLost(f"Worker process {self.pid} ended in mid-hop.") from error
            self._waits = True
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
        """End the process, whatever it is doing; one that only waits is kept for the next call."""
        if self._calls.acquire(blocking=False):
            waits = self._waits
            self._calls.release()
            if waits and self._rests():
                IDLE.keep(self._kind, self._process)
                return
        end(self._process)

    def _rests(self) -> bool:
        """Return whether the process has let go of all it held, and can serve anybody."""
        try:
            answer, _ = self._call({"rest": True})
        except errors.WorkerLost:
            return False
        return bool(answer["rests"])


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
            if (short := shortage(error)) is not None:
                _write(out, _answer(short))
                continue
            failed = errors.TrainingFailed(f"{type(error).__name__}: {error}")
            failed.trace = trace_of(error)
            _write(out, _answer(failed))


def _answer(error: errors.MmdbError) -> dict[str, Any]:
    said = {"sqlstate": error.sqlstate, "message": error.message, "hint": error.hint}
    return said | {"trace": trace_of(error)}


def _pieces(payload: bytes, sizes: list[int]) -> list[bytes]:
    """Return the bytes that were written one after the other."""
    if len(sizes) == 1:
        return [payload]
    return [payload[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]


class _ServedChild:
    """The child's session, which it makes when it is told its device."""

    def __init__(self) -> None:
        self._session: Any = None

    def __call__(self, header: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], Payload]:
        if "rest" in header:
            self._session = None
            return {"rests": not _has_code_of_users()}, ()
        if "warm_up" in header:
            os.environ.clear()
            os.environ.update(header["environment"])
            return {"environment": self._warm_up(header["warm_up"])}, ()
        job = job_of(header["job"], header["spec"])
        result, left = job.run(self._session, _pieces(payload, header["sizes"]), lambda: False)
        answer = {
            "result": asdict(result) if hasattr(result, "__dataclass_fields__") else result,
            "leaves": left is not None,
            "held": self._session.all_held(),
            "backbones": self._session.backbone_names(),
        }
        return answer, () if left is None else (left,)

    def _warm_up(self, device: str) -> str:
        with uncollected():
            from mmdb.train.hops.device_worker import DeviceWorker, warm_up

            if self._session is None:
                self._session = DeviceWorker(device)
            return warm_up(self._session.device)


def _has_code_of_users() -> bool:
    """Return whether modules are loaded that people may change, which the next call loads anew."""
    own = str(Path(__file__).parents[2])
    installed = tuple({sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), own})
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    absolute = (file for file in files if file is not None and Path(file).is_absolute())
    return not all(file.startswith(installed) for file in absolute)


if __name__ == "__main__":
    main()
