"""Worker processes of DuckDB's driver: they compute hops, and open no database.

A message is a length-prefixed JSON header and a length-prefixed payload (an encoded state, or
nothing), over the child's standard input and output. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from time import perf_counter
from typing import IO, Any

from mmdb import errors
from mmdb.train.spec import HopResult, HopSpec


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


class Child:
    """A worker process, as the owner of the file sees it: a `Performer`."""

    def __init__(self) -> None:
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mmdb.train.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,  # a small state goes through in one piece
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # a Ctrl-C is for the owner, which then ends its children
        )
        self._held: dict[int, str] = {}
        self._partitions: set[str] = set()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def warm_up(self) -> str:
        """Wait until torch is loaded; return the environment that hops will record."""
        header, _ = self._call({"call": "warm_up"})
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
        """Let the child compute a hop; see `Session.perform`."""
        candidate_id = spec.candidate.candidate_id
        self._held.pop(candidate_id, None)
        call = {"call": "perform", "spec": spec.to_json(), "state": state is not None}
        begun = perf_counter()
        header, payload = self._call(call, state or b"")
        result = HopResult(**header["result"])
        self._held = {int(k): v for k, v in header["held"].items()}
        if not header["state"]:
            return result, None
        # What the child's phases leave over is the state on its way here: part of storing it.
        phases_s = result.load_s + result.compute_s + result.encode_s
        moved_s = perf_counter() - begun - phases_s
        return replace(result, encode_s=result.encode_s + moved_s), payload

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
            raise known
        return answer, data

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                try:
                    stream.close()
                except OSError:
                    pass  # what was still buffered for a dead process


def main() -> None:
    """Serve calls until standard input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's module prints must not end up among the messages
    from mmdb.train.session import Session

    session = Session()
    while True:
        try:
            header, payload = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            _write(out, *_serve(session, header, payload))
        except errors.MmdbError as error:
            _write(out, _answer(error))
        except Exception as error:  # else a user's module would end the process
            _write(out, _answer(errors.TrainingFailed(f"{type(error).__name__}: {error}")))


def _answer(error: errors.MmdbError) -> dict[str, Any]:
    return {"sqlstate": error.sqlstate, "message": error.message, "hint": error.hint}


def _serve(session: Any, header: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
    if header["call"] == "warm_up":
        from mmdb.train.session import warm_up

        return {"environment": warm_up()}, b""
    if header["call"] == "map_partition":
        session.map_partition(header["key"])
        return {}, b""
    spec = HopSpec.from_json(header["spec"])
    result, state = session.perform(spec, payload if header["state"] else None)
    answer = {"result": asdict(result), "state": state is not None, "held": session.all_held()}
    return answer, state or b""


if __name__ == "__main__":
    main()
