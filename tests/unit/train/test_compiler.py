"""A worker starts without torch's compiler, and has it as soon as a module is compiled."""

from __future__ import annotations

import subprocess
import sys
import textwrap

#: What a worker does before and in its hops, in a process of its own: here the compiler is loaded.
BEGIN = """
import sys
import torch
from mmdb.train.compute.exact import KEPT
from mmdb.train.compute.exact import exact
from mmdb.train.hops.device_worker import DeviceWorker, warm_up

def is_loaded():
    return "torch._dynamo.convert_frame" in sys.modules

def step(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.zero_grad()
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    optimizer.load_state_dict(optimizer.state_dict())

warm_up(DeviceWorker("cpu").device)
module = torch.nn.Linear(3, 3)
with exact(0):
    step(module)
assert not is_loaded()
"""


def run(code: str) -> None:
    program = BEGIN + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_compiled_in_a_hop_gets_the_compiler_and_its_switches() -> None:
    run("""
        zero_grad = torch.optim.Optimizer.zero_grad.__wrapped__
        assert vars(zero_grad)[KEPT] is zero_grad
        with exact(0):
            step(torch.compile(module, backend="eager"))
            import torch._inductor.config
            assert torch._inductor.config.deterministic
            assert torch.are_deterministic_algorithms_enabled()
        assert not torch._inductor.config.deterministic
        assert not torch.are_deterministic_algorithms_enabled()
        assert is_loaded()
        import torch._dynamo as one
        assert one is torch._dynamo is sys.modules["torch._dynamo"]
        assert vars(zero_grad)[KEPT] is not zero_grad, "the compiler was asked to leave it alone"
        with exact(0):
            assert torch._inductor.config.deterministic
        """)


def test_whoever_asks_the_compiler_for_anything_gets_it() -> None:
    run("""
        import torch._dynamo
        torch._dynamo.graph_break()
        assert not is_loaded()
        assert torch.compiler.disable(lambda x: x + 1)(1) == 2
        assert is_loaded()
        import torch._dynamo.config
        assert torch._dynamo.config.recompile_limit
        """)
