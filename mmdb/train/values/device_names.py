"""Names of devices, as people write them: "cpu", or the kind of an accelerator and its number.

The kinds are torch's: `cuda` (NVIDIA and, under ROCm, AMD), `xpu` (Intel), `mps` (Apple). This is
the one module that knows what is particular to a kind; all else asks `torch.accelerator`.
"""

from __future__ import annotations

import re

#: By kind, the environment variable by which a process sees some of the devices alone.
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
#: What must be set before a device is used: cuBLAS is deterministic only with its own workspace.
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
EXAMPLES = "Write cpu, or a kind of accelerator and its number, such as cuda:0."


def split(text: object) -> tuple[str, int | None] | None:
    """Return kind and number of a device's name; None where it is no name.

    >>> split("cuda:1"), split("mps"), split("cpu"), split("cpu:0"), split("cuda:x")
    (('cuda', 1), ('mps', None), ('cpu', None), None, None)
    """
    found = re.fullmatch(r"([a-z]+)(?::(\d{1,4}))?", text) if isinstance(text, str) else None
    if found is None or (found[1] == "cpu" and found[2]):
        return None
    return found[1], int(found[2]) if found[2] else None


def visible(device: str, environment: dict[str, str]) -> dict[str, str]:
    """Return what of an environment makes a process see one device alone.

    Args:
        environment: of this process, which may see some devices only.

    >>> visible("cuda:2", {}), visible("cuda:1", {"CUDA_VISIBLE_DEVICES": "4,6"})
    ({'CUDA_VISIBLE_DEVICES': '2'}, {'CUDA_VISIBLE_DEVICES': '6'})
    >>> visible("cpu", {}), visible("mps:0", {})
    ({}, {})
    """
    kind, index = split(device) or ("", None)
    if index is None or kind not in _VISIBLE:
        return {}
    shown = environment.get(_VISIBLE[kind])
    names = dict(enumerate(shown.split(","))) if shown else {index: str(index)}
    return {_VISIBLE[kind]: names.get(index, "none")}


def inside(device: str) -> str:
    """Return the name that a device has in a process made with `visible`.

    >>> inside("cuda:2"), inside("cpu"), inside("mps:0")
    ('cuda:0', 'cpu', 'mps:0')
    """
    kind, index = split(device) or ("", None)
    return f"{kind}:0" if index is not None and kind in _VISIBLE else device
