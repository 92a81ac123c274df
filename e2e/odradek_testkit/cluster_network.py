"""A cluster whose brokers reach each other through proxies, so that the network can fail.

    with PartitionedCluster(3, directory) as cluster:
        cluster.network.isolate(2)                 broker 2 and the others: nothing gets through
        cluster.network.cut(1, 2)                  the same between two
        cluster.network.drop_requests(1, 2)        1 cannot ask 2; 2 can ask 1
        cluster.network.drop_answers(1, 2)         1 asks 2, which does it; 1 never hears of it
        cluster.network.heal()

Every broker advertises the address of a proxy of its own. Brokers are known by their client ids
(`broker-1-…`) and are held up; clients never are. What was held up arrives after `heal`: late
requests and late answers are part of the test. Portable, unlike packet filters, and it can tell
brokers from clients on the same port, which they cannot.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from odradek_testkit.cluster import VOTERS_MAX, Cluster
from odradek_testkit.proxy import Proxy, Says


def requests_of(node_ids: Iterable[int]) -> Says:
    prefixes = tuple(f"broker-{node_id}-" for node_id in node_ids)
    return lambda client_id: client_id.startswith(prefixes)


class Network:
    """The proxies, on an event loop in a thread of their own."""

    def __init__(self, ports: dict[int, int]) -> None:
        """`ports` are those on which the brokers listen."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._dropped: dict[int, set[int]] = {}  # node → whose requests do not reach it
        self._muted: dict[int, set[int]] = {}  # node → who does not get its answers
        self.proxies: dict[int, Proxy] = {}
        for node_id, port in ports.items():
            proxy = self.proxies[node_id] = self._call(lambda port=port: Proxy(port))
            asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result(10)

    def _call(self, action: Callable[[], object]) -> object:
        async def run() -> object:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def close(self) -> None:
        for proxy in self.proxies.values():
            asyncio.run_coroutine_threadsafe(proxy.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def port(self, node_id: int) -> int:
        return self.proxies[node_id].port

    # -- what fails ----------------------------------------------------------------------------

    def drop_requests(self, sender: int, receiver: int) -> None:
        self._dropped.setdefault(receiver, set()).add(sender)
        self._tell()

    def drop_answers(self, asking: int, answering: int) -> None:
        self._muted.setdefault(answering, set()).add(asking)
        self._tell()

    def cut(self, one: int, other: int) -> None:
        self.drop_requests(one, other)
        self.drop_requests(other, one)

    def isolate(self, node_id: int) -> None:
        for other in self.proxies:
            if other != node_id:
                self.cut(node_id, other)

    def heal(self) -> None:
        self._dropped.clear()
        self._muted.clear()
        self._call(lambda: [proxy.heal() for proxy in self.proxies.values()])

    def _tell(self) -> None:
        def tell() -> None:
            for node_id, proxy in self.proxies.items():
                proxy.block(requests_of(self._dropped.get(node_id, ())))
                proxy.mute(requests_of(self._muted.get(node_id, ())))

        self._call(tell)


class PartitionedCluster(Cluster):
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
