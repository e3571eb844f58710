"""Machines on a network, on this one: namespaces, cables and a switch, made and removed by tests.

    with Network() as network:
        host = network.add_host()
        subprocess.run([*host.enter(), "ip", "address"])  # runs there
        host.link.cut()

Each host is a network namespace with one interface. Its cable ends at a bridge in a namespace of
its own, so that no rule of this machine's firewall touches what goes over it. This process is on
the switch too, by a cable to the namespace that it runs in, and reaches every host by its address.

Needs Linux, the programs `ip` and `nsenter`, and the right to make namespaces, as root has it.
"""

from __future__ import annotations

import atexit
import ipaddress
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.network.link import Link, NoLink, ip

PREFIX = "mmdb"
NAMESPACES = Path("/run/netns")
#: The private range that networks are taken from, of which each has a /24 (RFC 1918).
RANGE = ipaddress.IPv4Network("10.83.0.0/16")
_numbers = itertools.count(1)


class NoNetwork(Exception):
    """This user may not make networks here; the message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace with an address on a network."""

    namespace: str
    address: str
    link: Link

    def enter(self, *, user: int | None = None, group: int | None = None) -> list[str]:
        """Return the words before a command that has it run there, as a user if one is given."""
        words = ["nsenter", f"--net={NAMESPACES / self.namespace}"]
        if user is not None and group is not None:
            words += [f"--setgid={group}", f"--setuid={user}"]
        return [*words, "--"]


class Network:
    """A switch with hosts; use it in `with`.

    Attributes:
        address: of this process.
        subnet: of all, as "10.83.7.0/24".
        link: the cable between this process and the switch.
    Raises:
        NoNetwork
    """

    def __init__(self) -> None:
        reason = why_no_network()
        if reason:
            raise NoNetwork(reason)
        remove_abandoned()
        self._name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self._creator_pid = os.getpid()
        self._switch = f"{self._name}-s"
        self._interface = f"{PREFIX}{secrets.token_hex(4)}"
        self._subnet = _free_subnet()
        self._hosts: list[Host] = []
        self._addresses = self._subnet.hosts()
        self.subnet = str(self._subnet)
        self.address = str(next(self._addresses))
        atexit.register(self.close)
        _end_in_order()
        try:
            ip("netns", "add", self._switch)
            # Ports have no business on the network themselves, and would say hello to it.
            self._quiet(self._switch)
            ip("link", "add", "switch", "type", "bridge", namespace=self._switch)
            ip("link", "set", "switch", "up", namespace=self._switch)
            self.link = Link(self._switch, "port0")
            self._plug(self.link, self._interface, str(os.getpid()), self.address)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Return the hosts, in the order in which they came."""
        return tuple(self._hosts)

    def add_host(self) -> Host:
        """Return a new host, which every other one reaches."""
        number = len(self._hosts) + 1
        namespace = f"{self._name}-{number}"
        ip("netns", "add", namespace)
        host = Host(namespace, str(next(self._addresses)), Link(self._switch, f"port{number}"))
        self._hosts.append(host)
        self._quiet(namespace)
        ip("link", "set", "lo", "up", namespace=namespace)
        self._plug(host.link, "eth0", namespace, host.address)
        return host

    def close(self) -> None:
        """Remove everything; processes inside must have ended."""
        if os.getpid() != self._creator_pid:  # a forked child holds a copy of this object
            return
        atexit.unregister(self.close)
        for link in [host.link for host in self._hosts] + [getattr(self, "link", None)]:
            if link is not None:
                with suppress(NoLink):
                    link.straighten()
        with suppress(NoLink):  # the other end goes with it, a namespace only some time later
            ip("link", "del", self._interface)
        for namespace in [host.namespace for host in self._hosts] + [self._switch]:
            _remove(namespace)
        self._hosts.clear()

    def _plug(self, link: Link, interface: str, namespace: str, address: str) -> None:
        """Connect an interface of a namespace (its name, or a process in it) with the switch."""
        there = ["name", interface, "netns", namespace]
        ip("link", "add", link.port, "type", "veth", "peer", *there, namespace=self._switch)
        ip("link", "set", link.port, "master", "switch", "up", namespace=self._switch)
        inside = None if namespace.isdigit() else namespace
        length = self._subnet.prefixlen
        ip("address", "add", f"{address}/{length}", "dev", interface, namespace=inside)
        ip("link", "set", interface, "up", namespace=inside)

    def _quiet(self, namespace: str) -> None:
        """Keep the addresses that Linux gives by itself off the network."""
        setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
        command = ["nsenter", f"--net={NAMESPACES / namespace}", "--", "tee", setting]
        subprocess.run(command, input="1", text=True, capture_output=True, check=False)


def why_no_network() -> str:
    """Return why this process can make no networks, or "" where it can."""
    for program in ("ip", "nsenter"):
        if not shutil.which(program):
            return f"There is no program `{program}`."
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        ip("netns", "add", probe)
        ip("link", "add", "probe", "type", "bridge", namespace=probe)
        ip("link", "add", "probe0", "type", "veth", "peer", "name", "probe1", namespace=probe)
    except NoLink as error:
        return f"Network namespaces cannot be made: {error}"
    finally:
        _remove(probe)
    return ""


def _end_in_order() -> None:
    """Let signals end this process by an exception, so that what it has made is removed."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, frame: sys.exit(128 + number))


def remove_abandoned() -> None:
    """Remove the namespaces of processes that were killed; their names say whose they are."""
    if not NAMESPACES.is_dir():
        return
    for path in NAMESPACES.glob(f"{PREFIX}[0-9]*-*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    """Remove a namespace with its interfaces; those of the same cable go with them."""
    with suppress(NoLink):
        ip("netns", "del", namespace)


def _free_subnet() -> ipaddress.IPv4Network:
    """Return a /24 of `RANGE` to which this machine knows no way but the default one."""
    routes: list[dict[str, Any]] = json.loads(ip("-4", "-j", "route", "show", "table", "all"))
    taken = [
        ipaddress.ip_network(route["dst"], strict=False)
        for route in routes
        if route.get("dst", "default")[:1].isdigit()
    ]
    candidates = list(RANGE.subnets(new_prefix=24))
    for net in secrets.SystemRandom().sample(candidates, len(candidates)):
        if not any(net.overlaps(other) for other in taken):
            return net
    raise NoNetwork(f"All of {RANGE} is in use.")
