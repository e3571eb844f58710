"""Devices: the CPU everywhere; a clear error where a GPU is not."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from mmdb.data.decoding import Target
from mmdb.errors import DeviceMissing, PrecisionMissing
from mmdb.train.candidate.setup import setup_of
from mmdb.train.compute import device
from mmdb.train.compute.device import CPU, described, device_of, peak_bytes, reset_peak, scaler_of
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.live import build_live
from mmdb.train.hops.device_worker import DeviceWorker

TARGETS = (Target(name="y", task="classification", size=2),)
no_gpu = pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU here")


def test_the_cpu_is_a_device() -> None:
    assert device_of("cpu") == CPU
    assert DeviceWorker().device == CPU


@pytest.mark.parametrize("text", ["", "GPU", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cpu:0", 5])
def test_what_names_no_device_is_refused(text: str) -> None:
    with pytest.raises(DeviceMissing, match=r"is not a device") as raised:
        device_of(text)
    assert "cuda:0" in raised.value.hint


@no_gpu
@pytest.mark.parametrize("text", ["cuda", "cuda:0", "cuda:7", "xpu:1", "gpu"])
def test_a_gpu_that_is_not_there_is_named_with_what_is(text: str) -> None:
    with pytest.raises(DeviceMissing, match=f"'{text}' here: ") as raised:
        device_of(text)
    assert "--device cpu" in raised.value.hint


@no_gpu
def test_a_session_takes_its_device_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMDB_DEVICE", "cuda:1")
    with pytest.raises(DeviceMissing, match="cuda:1"):
        DeviceWorker()
    assert DeviceWorker("cpu").device == CPU
    monkeypatch.setenv("MMDB_DEVICE", "")
    assert DeviceWorker().device == CPU


def test_cublas_is_told_to_be_deterministic_before_a_gpu_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is put back
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with pytest.raises(DeviceMissing):
        device_of("cuda:999")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_the_environment_of_the_cpu_names_torch_the_processor_and_the_threads() -> None:
    with exact(0):
        assert environment() == environment(CPU)
        assert environment().startswith(f"torch {torch.__version__}, ")
        assert environment().endswith(", 1 thread(s)")
    assert described(CPU) == "cpu"


def test_the_peak_of_the_cpu_is_the_process_s() -> None:
    reset_peak(CPU)
    before = peak_bytes(CPU)
    held = torch.ones(2**24)  # 64 MB, touched
    assert peak_bytes(CPU) >= max(before, held.nbytes)


def test_a_precision_that_the_device_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_computes", lambda device, name: False)
    with pytest.raises(PrecisionMissing, match="cpu does not compute in bfloat16") as raised:
        build_live(nn.Linear(2, 2), setup_of({"amp": "bfloat16"}, TARGETS).config)
    assert "amp" in raised.value.hint
    assert scaler_of(None, CPU) is None


def test_only_float16_needs_a_scaler() -> None:
    assert scaler_of("bfloat16", CPU) is None
    assert isinstance(scaler_of("float16", CPU), torch.amp.GradScaler)
