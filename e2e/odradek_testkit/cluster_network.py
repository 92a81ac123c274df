"""A cluster whose brokers reach each other through proxies, so that the network can fail.

    with PartitionedCluster(3, directory) as cluster:
        cluster.network.isolate(2)                 # between broker 2 and every other broker
        cluster.network.cut(1, 2)                  # between two brokers, in both directions
        cluster.network.drop_requests(1, 2)        # requests of 1 to 2; those of 2 to 1 arrive
        cluster.network.drop_answers(1, 2)         # 2 handles requests of 1; the answers are held
        cluster.network.heal()

Every broker advertises the address of a proxy of its own (proxy.py). The proxy recognises brokers
by their client ids (`broker-1-…`) and delays only their bytes, never those of clients. What was
delayed arrives after `heal`: late requests and late answers are part of the test. Unlike packet
filters this needs no privileges and can tell brokers from clients on the same port.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar

from odradek_testkit.cluster import VOTERS_MAX, Cluster
from odradek_testkit.proxy import ClientFilter, Proxy

T = TypeVar("T")
Fault: TypeAlias = Literal["block", "mute", "cut"]
CALL_DEADLINE_S = 10.0


def requests_of(node_ids: Iterable[int]) -> ClientFilter:
    prefixes = tuple(f"broker-{node_id}-" for node_id in node_ids)
    return lambda client_id: client_id.startswith(prefixes)


class Network:
    """The proxies, on an event loop in a thread of their own."""

    def __init__(self, ports: dict[int, int]) -> None:
        """`ports`: node id → the port on which that broker listens."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._dropped: dict[int, set[int]] = {}  # node → the nodes whose requests it does not get
        self._muted: dict[int, set[int]] = {}  # node → the nodes that do not get its answers
        self.proxies: dict[int, Proxy] = {}
        for node_id, port in ports.items():
            self.proxies[node_id] = self._run(_started(port))

    def _run(self, task: Coroutine[Any, Any, T]) -> T:
        """Runs it on the proxies' loop and waits for its result."""
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(CALL_DEADLINE_S)

    def close(self) -> None:
        for proxy in self.proxies.values():
            self._run(proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def port(self, node_id: int) -> int:
        return self.proxies[node_id].port

    # -- faults --------------------------------------------------------------------------------

    def drop_requests(self, sender: int, receiver: int) -> None:
        self._dropped.setdefault(receiver, set()).add(sender)
        self._update_proxies()

    def drop_answers(self, asking: int, answering: int) -> None:
        self._muted.setdefault(answering, set()).add(asking)
        self._update_proxies()

    def cut(self, one: int, other: int) -> None:
        self.drop_requests(one, other)
        self.drop_requests(other, one)

    def isolate(self, node_id: int) -> None:
        for other in self.proxies:
            if other != node_id:
                self.cut(node_id, other)

    def disturb(self, node_id: int, fault: Fault, client_id: str) -> None:
        """Between one broker and one client, until `restore` of this broker, or `heal`."""
        proxy = self.proxies[node_id]

        async def begin() -> None:
            {"block": proxy.block, "mute": proxy.mute, "cut": proxy.cut}[fault](client_id.__eq__)

        self._run(begin())

    def restore(self, node_id: int) -> None:
        async def end() -> None:
            self.proxies[node_id].heal()

        self._run(end())

    def heal(self) -> None:
        self._dropped.clear()
        self._muted.clear()

        async def heal_all() -> None:
            for proxy in self.proxies.values():
                proxy.heal()

        self._run(heal_all())

    def _update_proxies(self) -> None:
        async def update() -> None:
            for node_id, proxy in self.proxies.items():
                proxy.block(requests_of(self._dropped.get(node_id, ())))
                proxy.mute(requests_of(self._muted.get(node_id, ())))

        self._run(update())


async def _started(port: int) -> Proxy:
    proxy = Proxy(port)
    await proxy.start()
    return proxy


class PartitionedCluster(Cluster):
    """A cluster whose brokers talk through the proxies of `network`."""

    def __init__(self, size: int, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(size, directory=directory, settings=settings)
        ports = {i: int(node.address.rpartition(":")[2]) for i, node in self.nodes.items()}
        self.network = Network(ports)
        voters = ",".join(
            f"{i}@127.0.0.1:{self.network.port(i)}" for i in range(1, VOTERS_MAX + 1)[:size]
        )
        for node_id, node in self.nodes.items():
            port = self.network.port(node_id)
            node.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
            node.settings["controller.quorum.voters"] = voters

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.network.close()
