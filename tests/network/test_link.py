"""The network that tests make: what its cables do to packets, and that nothing of it stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.network.link import ip
from tests.network.network import NAMESPACES, Host, Network, why_no_network

PORT = 5000
ECHO = (
    "import socket\n"
    "s = socket.socket(type=socket.SOCK_DGRAM)\n"
    f"s.bind(('0.0.0.0', {PORT}))\n"
    "print(flush=True)\n"
    "while True:\n"
    "    data, sender = s.recvfrom(65536)\n"
    "    s.sendto(data, sender)\n"
)
WAIT_S = 0.7  # for what may not come

pytestmark = pytest.mark.skipif(bool(reason := why_no_network()), reason=reason)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture(scope="module")
def host(network: Network) -> Iterator[Host]:
    """Return a host that sends back what it gets."""
    made = network.add_host()
    command = [*made.enter(user=65534, group=65534), sys.executable, "-c", ECHO]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield made
        process.kill()


def echoes(host: Host, count: int = 1, size_bytes: int = 100) -> int:
    """Return how many of so many datagrams come back."""
    with socket.socket(type=socket.SOCK_DGRAM) as us:
        us.settimeout(WAIT_S)
        us.connect((host.address, PORT))
        for _ in range(count):
            us.send(bytes(size_bytes))
        came = 0
        try:
            while came < count:
                us.recv(65536)
                came += 1
        except TimeoutError:
            pass
        return came


def test_a_plain_cable_passes_and_counts_every_byte(host: Host) -> None:
    echoes(host)  # and they have each other's hardware address
    before = host.link.traffic()
    assert echoes(host, count=20, size_bytes=1000) == 20
    passed = host.link.traffic() - before
    frame = 1000 + 8 + 20 + 14  # with the headers of UDP, IP and Ethernet
    assert passed.sent == passed.received == 20 * frame


def test_a_cut_cable_passes_nothing_until_it_is_mended(host: Host) -> None:
    host.link.cut()
    assert echoes(host) == 0
    host.link.mend()
    assert echoes(host) == 1


def test_a_slow_cable_delays_in_both_directions(host: Host) -> None:
    host.link.shape(delay_s=0.05)
    started = time.monotonic()
    assert echoes(host) == 1
    assert time.monotonic() - started >= 2 * 0.05
    host.link.straighten()
    assert echoes(host) == 1


def test_a_lossy_cable_loses_its_share(host: Host) -> None:
    assert echoes(host) == 1
    host.link.shape(loss=0.3, seed=0)
    came = echoes(host, count=400)
    assert 0.35 < came / 400 < 0.63  # 0.7 of them get there, and 0.7 of these come back
    host.link.straighten()


def test_a_narrow_cable_takes_its_time(host: Host) -> None:
    host.link.shape(bytes_per_s=100_000)
    started = time.monotonic()
    assert echoes(host, count=10, size_bytes=1000) == 10
    assert time.monotonic() - started >= 10 * 1000 / 100_000
    host.link.straighten()


def test_nothing_of_a_network_stays() -> None:
    with Network() as network:
        names = {network.add_host().namespace for _ in range(2)}
        network.hosts[0].link.shape(delay_s=0.01)
        assert names <= {path.name for path in NAMESPACES.iterdir()}
        assert f" {network.address}/" in ip("-4", "address")
    assert not names & {path.name for path in NAMESPACES.iterdir()}
    assert f" {network.address}/" not in ip("-4", "address")


def test_the_next_network_removes_what_a_killed_process_left() -> None:
    script = (
        "import os, signal\n"
        "from tests.network.network import Network\n"
        "network = Network()\n"
        "network.add_host()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", script], cwd=os.getcwd())
    killed.wait()
    left = [path for path in NAMESPACES.iterdir() if path.name.startswith(f"mmdb{killed.pid}-")]
    assert len(left) == 2  # the switch and the host
    with Network():
        pass
    assert not any(path.exists() for path in left)
