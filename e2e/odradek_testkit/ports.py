"""Free ports on loopback.

    free_port()        for one server
    free_ports(3)      for several, such as the brokers of a cluster

A port is free when this process can bind it; between that moment and the server's own bind another
process could take it. Servers that can listen on port 0 and report their port need neither.
"""

from __future__ import annotations

import random
import socket

# Below the range that the kernel gives to outgoing connections (32768 and up on Linux), so that no
# connection takes a broker's port while it is down, or while a JVM takes seconds to bind it.
STABLE_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port out of STABLE_PORTS."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports out of STABLE_PORTS: a restarted server finds its port free again."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(STABLE_PORTS)
        if port in found:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
