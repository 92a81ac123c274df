"""The broker's ports together: loop, clock, disk, randomness, threads.

The simulator and tests replace them; `wiring.py` makes the real ones.
"""

import asyncio
from dataclasses import dataclass
from random import Random

from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import Disk
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.tasks import Threads


@dataclass(frozen=True, slots=True)
class Ports:
    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    rng: Random
    threads: Threads
    # How this broker connects to others of the quorum; None: without TLS and SASL.
    quorum_security: PeerSecurity | None = None
