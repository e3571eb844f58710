"""The network that tests make: what its cables do to packets, and that nothing of it stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.network.link import ip
from tests.network.network import NAMESPACES, Host, Network, why_no_network

PORT = 5000
ECHO = (
    "import socket\n"
    "s = socket.socket(type=socket.SOCK_DGRAM)\n"
    "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)\n"
    f"s.bind(('0.0.0.0', {PORT}))\n"
    "print(flush=True)\n"
    "while True:\n"
    "    data, sender = s.recvfrom(65536)\n"
    "    s.sendto(data, sender)\n"
)
WAIT_S = 0.7  # for what may not come
PATIENCE_S = 60  # for what must come
AGAIN_S = 0.2  # until the next one is sent, while a cable may not be up yet
ENDS = 64  # datagrams that say that all before them have come; some of them do, on any cable

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


def connected(host: Host, wait_s: float) -> socket.socket:
    """Return a socket to the host that answers; what must not be lost here has room."""
    us = socket.socket(type=socket.SOCK_DGRAM)
    us.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    us.settimeout(wait_s)
    us.connect((host.address, PORT))
    return us


def echoes(host: Host, count: int = 1, size_bytes: int = 100, wait_s: float = PATIENCE_S) -> int:
    """Return how many of so many datagrams come back before one takes too long."""
    came = 0
    with connected(host, wait_s) as us, suppress(TimeoutError):
        for _ in range(count):
            us.send(bytes(size_bytes))
        while came < count:
            us.recv(65536)
            came += 1
    return came


def reach(host: Host) -> None:
    """Send until something comes back: a cable that was touched takes a while to be up."""
    with connected(host, AGAIN_S) as us:
        for _ in range(int(PATIENCE_S / AGAIN_S)):
            with suppress(TimeoutError, ConnectionRefusedError):
                us.send(b"?")
                us.recv(65536)
                return
    raise AssertionError(f"{host.address} does not answer")


def share_that_comes_back(host: Host, count: int) -> float:
    """Return the share of so many datagrams that comes back over a cable that loses some."""
    with connected(host, PATIENCE_S) as us:
        for text in [b"one"] * count + [b"end"] * ENDS:
            us.send(text)
        came = 0
        while us.recv(65536) != b"end":
            came += 1
    return came / count


def test_a_plain_cable_passes_and_counts_every_byte(host: Host) -> None:
    reach(host)  # and they have each other's hardware address
    before = host.link.traffic()
    assert echoes(host, count=20, size_bytes=1000) == 20
    passed = host.link.traffic() - before
    frame = 1000 + 8 + 20 + 14  # with the headers of UDP, IP and Ethernet
    for count in (passed.sent, passed.received):  # and they may ask for that address again
        assert 20 * frame <= count < 21 * frame


def test_a_cut_cable_passes_nothing_until_it_is_mended(host: Host) -> None:
    host.link.cut()
    assert echoes(host, wait_s=WAIT_S) == 0
    host.link.mend()
    reach(host)


def test_a_slow_cable_delays_in_both_directions(host: Host) -> None:
    host.link.shape(delay_s=0.05)
    reach(host)
    started = time.monotonic()
    assert echoes(host) == 1
    assert time.monotonic() - started >= 2 * 0.05
    host.link.straighten()
    reach(host)


def test_a_lossy_cable_loses_its_share(host: Host) -> None:
    host.link.shape(loss=0.3, seed=0)
    reach(host)
    # 0.7 of them get there, and 0.7 of these come back.
    assert 0.35 < share_that_comes_back(host, 400) < 0.63
    host.link.straighten()
    reach(host)
    assert share_that_comes_back(host, 400) == 1


def test_a_narrow_cable_takes_its_time(host: Host) -> None:
    host.link.shape(bytes_per_s=100_000)
    reach(host)
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
