"""Delay, loss, duplicates and one-way cuts between namespaces, without the kernel's netem.

    python -m odradek_e2e.chaos.world.links DEVICE MTU 254= 1=/run/netns/b1 2=/run/netns/b2 …

The process has a tun device in each namespace. What is routed into the device of the sender is
read here, treated by the rule of its direction, and written to the device of the receiver. Rules
come as one JSON array per line on stdin, each [sender, receiver, drop, delay_ms, jitter_ms,
duplicate], and replace those before; "ready" answers each line. A jitter larger than the time
between two packets reorders them.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
HELD_MAX = 20_000  # packets under delay; more are dropped, as by a router's queue
IPV4 = 4


class Rule(NamedTuple):
    """The treatment of the packets of one direction."""

    drop: float = 0.0  # probability
    delay_ms: float = 0.0
    jitter_ms: float = 0.0  # at most this much more
    duplicate: float = 0.0  # probability


HEALTHY = Rule()
CUT = Rule(drop=1.0)


class Links:
    """The devices, and the packets that are under way."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._devices: dict[int, int] = {}  # member → descriptor of its device
        self._rules: dict[tuple[int, int], Rule] = {}
        self._held: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def add(self, member: int, device: int) -> None:
        self._devices[member] = device

    def set_rules(self, rules: Sequence[Sequence[float]]) -> None:
        self._rules = {(int(a), int(b)): Rule(*rest) for a, b, *rest in rules}

    def take(self, sender: int, packet: bytes, now: float) -> None:
        """Decides about a packet that the sender's namespace has sent."""
        if len(packet) < 20 or packet[0] >> 4 != IPV4:
            return
        receiver = packet[19]  # the last number of the destination's address
        rule = self._rules.get((sender, receiver), HEALTHY)
        if rule.drop and self._rng.random() < rule.drop:
            return
        copies = 2 if rule.duplicate and self._rng.random() < rule.duplicate else 1
        for _ in range(copies):
            delay_ms = rule.delay_ms + self._rng.random() * rule.jitter_ms
            if delay_ms == 0.0:
                self._write(receiver, packet)
            elif len(self._held) < HELD_MAX:
                self._count += 1
                entry = (now + delay_ms / 1000, self._count, receiver, packet)
                heapq.heappush(self._held, entry)

    def deliver(self, now: float) -> float | None:
        """Writes the packets that are due; seconds until the next one, None if there is none."""
        while self._held and self._held[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(self._held)
            self._write(receiver, packet)
        return max(0.0, self._held[0][0] - now) if self._held else None

    def _write(self, receiver: int, packet: bytes) -> None:
        device = self._devices.get(receiver)
        if device is not None:
            with suppress(OSError):  # a full queue drops, as any other
                os.write(device, packet)

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for member, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, member)
            selector.register(sys.stdin, selectors.EVENT_READ, None)
            while True:
                for key, _ in selector.select(self.deliver(time.monotonic())):
                    if key.data is None:
                        if not (line := sys.stdin.readline()):
                            return
                        self.set_rules(json.loads(line))
                        print("ready", flush=True)
                    else:
                        self._read(key.data)

    def _read(self, member: int) -> None:
        now = time.monotonic()
        for _ in range(64):
            try:
                packet = os.read(self._devices[member], 1 << 16)
            except BlockingIOError:
                return
            self.take(member, packet, now)


def open_device(namespace: str, name: str, mtu: str) -> int:
    """A tun device in the namespace (empty: this process's own), up, without an address."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    if namespace:
        _enter(os.open(namespace, os.O_RDONLY))
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        subprocess.run(["ip", "link", "set", name, "mtu", mtu, "up"], check=True)
    finally:
        _enter(own)
    return device


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)


def main(words: Sequence[str]) -> None:
    name, mtu, *members = words
    links = Links(random.Random(1))
    for text in members:
        member, _, namespace = text.partition("=")
        links.add(int(member), open_device(namespace, name, mtu))
    print("ready", flush=True)
    links.run()


if __name__ == "__main__":
    main(sys.argv[1:])
