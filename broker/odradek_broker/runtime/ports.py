"""What a component needs of the process that it runs in, replaced as a whole in tests."""

import asyncio
from dataclasses import dataclass
from random import Random

from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Threads


@dataclass(frozen=True, slots=True)
class RuntimePorts:
    clock: Clock
    loop: asyncio.AbstractEventLoop
    threads: Threads
    rng: Random
