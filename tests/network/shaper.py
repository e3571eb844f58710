"""Passes frames between two interfaces, late or not at all.

    python -m tests.network.shaper ONE OTHER DELAY_S LOSS BYTES_PER_S SEED

Runs until its standard input ends. Interfaces hand over packets before they are cut into pieces of
the cable's length, as a network card would get them; what is lost of these is lost by pieces: the
whole is dropped as often as the first of its pieces would be, so that a loss stays rare.
"""

from __future__ import annotations

import random
import selectors
import socket
import sys
import time
from collections import deque
from contextlib import suppress

SOL_PACKET = 263  # Linux's <linux/if_packet.h>, which Python has no names for
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
HEADER_BYTES = 10  # struct virtio_net_hdr, which carries what a network card would have to do
LARGEST = HEADER_BYTES + 14 + (1 << 16)
BUFFER_BYTES = 8 << 20


class Direction:
    """Frames from one interface to the other, which are on their way."""

    def __init__(
        self, source: socket.socket, target: socket.socket, delay_s: float, bytes_per_s: float
    ) -> None:
        self.source, self._target = source, target
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s
        self._free_at = 0.0  # when the cable has taken in all frames so far
        self._frames: deque[tuple[float, bytes]] = deque()

    @property
    def due(self) -> float:
        """When the next frame arrives."""
        return self._frames[0][0] if self._frames else float("inf")

    def take(self, now: float, loss: float, chance: random.Random) -> None:
        """Take in every frame that waits at the source."""
        while True:
            try:
                frame = self.source.recv(LARGEST)
            except (BlockingIOError, OSError):  # none waits, or the interface is down
                return
            if chance.random() < loss:
                continue
            self._free_at = max(now, self._free_at)
            if self._bytes_per_s:
                self._free_at += (len(frame) - HEADER_BYTES) / self._bytes_per_s
            self._frames.append((self._free_at + self._delay_s, frame))

    def deliver(self, now: float) -> None:
        """Hand over the frames that have arrived."""
        while self._frames and self._frames[0][0] <= now:
            with suppress(OSError):  # a full queue drops frames, as any switch does
                self._target.send(self._frames.popleft()[1])


def open_interface(name: str) -> socket.socket:
    """Return a socket with all frames that come in at an interface."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    packets.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    packets.bind((name, ETH_P_ALL))
    packets.setblocking(False)
    return packets


def main(one: str, other: str, delay_s: str, loss: str, bytes_per_s: str, seed: str) -> None:
    """Pass frames on until the standard input ends."""
    ends = open_interface(one), open_interface(other)
    ways = [
        Direction(source, target, float(delay_s), float(bytes_per_s))
        for source, target in (ends, ends[::-1])
    ]
    chance = random.Random(int(seed))
    waiting = selectors.DefaultSelector()
    for way in ways:
        waiting.register(way.source, selectors.EVENT_READ, way)
    waiting.register(sys.stdin, selectors.EVENT_READ, None)
    print("ready", flush=True)
    while True:
        wait_s = min(way.due for way in ways) - time.monotonic()
        for key, _ in waiting.select(None if wait_s == float("inf") else max(wait_s, 0.0)):
            if key.data is None:
                return
            key.data.take(time.monotonic(), float(loss), chance)
        for way in ways:
            way.deliver(time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
