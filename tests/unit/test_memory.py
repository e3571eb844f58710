"""What a call may take: read from what the system says, and held by the process's limit."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmdb.errors import DeviceFull, OutOfMemory
from mmdb.memory import bounded, call_bytes, free_bytes, ran_out, require, shortage

MB = 2**20


def system(root: Path, cgroup: str, files: dict[str, object]) -> Path:
    """Write what a machine with 1000 MB, 800 of them free, says of itself."""
    texts = {
        "proc/meminfo": f"MemTotal: {1000 * 1024} kB\nMemAvailable: {800 * 1024} kB\n",
        "proc/self/cgroup": cgroup,
    }
    for name, text in (texts | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def group(name: str, *, files: int = 0, **sizes: object) -> dict[str, object]:
    """Return the files of a control group: sizes in MB, or texts."""
    found = {
        f"sys/fs/cgroup/{name}memory.{key}": size * MB if isinstance(size, int) else size
        for key, size in sizes.items()
    }
    stat = f"anon 5\ninactive_file {files * MB}\nactive_file 0\n"
    return found | {f"sys/fs/cgroup/{name}memory.stat": stat}


@pytest.mark.parametrize(
    ("cgroup", "files", "free"),
    [
        ("", {}, 800),
        ("0::/\n", {}, 800),
        ("0::/a/b\n", group("a/b/", max=500, current=100), 400),
        ("0::/a/b\n", group("a/b/", max=500, current=450, files=300), 350),
        ("0::/a/b\n", group("a/b/", max="max", high=300, current=100), 200),
        ("0::/a/b\n", group("a/", max=300, current=100) | group("a/b/", max="max", current=1), 200),
        ("0::/gone\n", group("", max=300, current=310), 0),
        ("4:cpu,memory:/a\n0::/\n", group("memory/a/", limit_in_bytes=90, usage_in_bytes=80), 10),
        ("4:cpu:/a\n0::/\n", group("memory/a/", limit_in_bytes=90, usage_in_bytes=80), 800),
        ("9:memory:/\n", group("memory/", limit_in_bytes=2**33, usage_in_bytes=80), 800),
    ],
)
def test_the_least_that_is_free_counts(
    tmp_path: Path, cgroup: str, files: dict[str, object], free: int
) -> None:
    assert free_bytes(system(tmp_path, cgroup, files)) == free * MB


def test_a_system_that_says_nothing_bounds_nothing(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None


def test_what_takes_more_than_a_call_may_is_refused() -> None:
    most = call_bytes()
    require(most, "All of it")
    with pytest.raises(OutOfMemory, match=f"It takes {most + 1:,} bytes of memory; this call"):
        require(most + 1, "It")


TAKES = """
import sys, torch
from mmdb.memory import FLOOR_BYTES, bounded, ran_out, require
from mmdb.errors import OutOfMemory
size = 3 * FLOOR_BYTES

def take(what):
    try:
        what()
    except Exception as error:
        return ran_out(error)
    return None

with bounded(lambda: 1000):
    ways = (lambda: bytearray(size)), (lambda: torch.empty(size)), (lambda: [0] * size)
    found = [take(way) for way in ways]
    with bounded(lambda: 10**12):
        found.append(take(lambda: bytearray(size)))
    found.append(take(lambda: bytearray(size)))
    try:
        require(1001, "It")
    except OutOfMemory:
        found.append(True)
found.append(take(lambda: bytearray(size)))
print(found)
"""


def test_a_process_takes_no_more_within_a_call_and_any_amount_after_it() -> None:
    said = subprocess.run([sys.executable, "-c", TAKES], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == str([True] * 6 + [None])


def test_the_limit_is_put_back_whatever_ends_the_call() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(KeyError), bounded():
        raise KeyError
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


class ServerError(Exception):
    sqlstate = "53200"


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (ServerError(), True),
        (OSError(errno.ENOMEM, "no"), True),
        (OSError(errno.ENOSPC, "no"), False),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ImportError("x.so: failed to map segment from shared object"), True),
        (ValueError("not enough memory"), False),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
    ],
)
def test_who_says_that_there_is_no_memory(error: Exception, is_one: bool) -> None:
    assert ran_out(error) is is_one


def test_what_a_device_lacks_is_told_apart_from_what_the_machine_lacks() -> None:
    short = shortage(torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2.00 GiB."))
    assert isinstance(short, DeviceFull)
    assert short.message.endswith("CUDA out of memory.")
    assert "MMDB_DEVICE_BYTES" in short.hint
    assert type(shortage(MemoryError())) is OutOfMemory
    assert shortage(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None


def test_torch_says_it_in_words() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55)
    assert ran_out(raised.value)
