"""Quorum nodes over real sockets and directories, in one process and one event loop.

    async with Cluster(tmp_path, 3) as cluster:
        leader = await cluster.active()
        await leader.append("a", "b")
        await cluster.applied_everywhere(leader.quorum.applied_offset)

Every node has the production server, handlers, log and service, without the rest of a broker.
Records are broker settings `name=value`, because those refer to nothing else.
A node is reached through its proxy, which can isolate it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from broker_tests.bare_broker import bare_broker
from odradek_broker.handlers.registry import build_apis
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.records import ConfigRecord, MetadataRecord, ResourceType
from odradek_broker.network.server import Server
from odradek_broker.raft.config import QuorumConfig, SnapshotPolicy
from odradek_broker.raft.formation import Bootstrap, Formation
from odradek_broker.raft.log_files import open_metadata_log
from odradek_broker.raft.service import QuorumService
from odradek_broker.raft.values import NodeIdentity, RaftEndpoint, ReplicaKey
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk
from odradek_broker.runtime.event_loop import PollerLoop
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.quorum_addresses import Address
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId
from odradek_testkit.proxy import Proxy

LISTENER = "PLAINTEXT"
CLUSTER_ID = "test-cluster"
# Short, so that a test takes a second; long enough for a busy machine.
CONFIG = QuorumConfig(
    election_timeout_ms=300,
    election_backoff_max_ms=100,
    fetch_timeout_ms=600,
    request_timeout_ms=600,
    fetch_max_wait_ms=200,
)
PATIENCE_S = 30


def setting(name: str, value: str) -> ConfigRecord:
    return ConfigRecord(ResourceType.CLIENT_METRICS, "test", name, value)


def run_story(story: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
    """In the event loop that a broker has."""
    with asyncio.Runner(loop_factory=PollerLoop) as runner:
        runner.run(asyncio.wait_for(story(), seconds))


class SleepyClock(SystemClock):
    """As if the process had been stopped for a while (SIGSTOP): only the clock went on."""

    slept_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.slept_ms


class Node:
    def __init__(
        self,
        node_id: int,
        directory: Path,
        proxy: Proxy,
        *,
        cluster_id: str = CLUSTER_ID,
        directory_id: UUID | None = None,
        policy: SnapshotPolicy | None = None,
        config: QuorumConfig = CONFIG,
    ) -> None:
        self.node_id = node_id
        self.directory = directory
        self.proxy = proxy
        self.cluster_id = cluster_id
        self.key = ReplicaKey(node_id, directory_id or uuid4())
        self.policy = policy or SnapshotPolicy()
        self.config = config
        self.failures: list[Exception] = []
        self.active_in: list[int] = []
        self.resigned = 0
        self.changes: list[tuple[int, int]] = []  # (image offset, controller epoch)
        self.running = False

    async def start(self, bootstrap: dict[int, int], formation: bool = False) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PollerLoop)
        self.executor = ThreadPoolExecutor(2)
        settings = Settings({"log.dirs": str(self.directory), "node.id": str(self.node_id)})
        self.clock = clock = SleepyClock()
        self.publisher = MetadataPublisher(BrokerId(self.node_id), settings)
        self.files = open_metadata_log(self.directory, RealDisk(), settings, clock.now_ms())
        others = {i: Address("127.0.0.1", port) for i, port in bootstrap.items()}
        others.pop(self.node_id, None)
        self.quorum = QuorumService(
            self.files,
            self.publisher,
            NodeIdentity(self.key, self.cluster_id, LISTENER),
            replace(self.config, snapshots=self.policy),
            Bootstrap(others, Formation(self.node_id, frozenset(others)) if formation else None),
            Ports(loop, clock, RealDisk(), Random(), self),
            self.failures.append,
        )
        self.quorum.attach(self)
        self.publisher.subscribe(
            lambda delta, epoch: self.changes.append((delta.after.offset, epoch))
        )
        metrics = Metrics()
        context = bare_broker(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            settings=settings,
            clock=clock,
            rng=Random(),
            metrics=metrics,
            metadata=self.publisher,
            quorum=self.quorum,
            controller=SimpleNamespace(lost_contact=lambda _: None),
            apis=build_apis(metrics),
        )
        self.server = Server(context, loop, loop.poller)
        _, port = self.server.bind(Listener(LISTENER, "127.0.0.1", 0, "PLAINTEXT"))
        self.proxy.target_port = port
        self.server.start_accepting()
        self.running = True
        await self.quorum.start((RaftEndpoint(LISTENER, "127.0.0.1", self.proxy.port),))

    async def kill(self) -> None:
        """Like kill -9, as far as that is possible within one process."""
        if self.running:
            self.running = False
            self.quorum.stop()
            # kill -9 would end the threads too; here they have to be waited for.
            await asyncio.to_thread(self.executor.shutdown)
            self.server.stop_accepting()
            await self.server.drain(0.0)

    def format(self) -> None:
        """This node is to be the first of its cluster."""
        endpoint = RaftEndpoint(LISTENER, "127.0.0.1", self.proxy.port)
        voters = VoterSet((Voter(self.key, (endpoint,)),))
        settings = Settings({"log.dirs": str(self.directory)})
        open_metadata_log(self.directory, RealDisk(), settings, 0).format(voters, 0)

    # the threads of this node

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self.executor, job)
        future.add_done_callback(lambda finished: done(finished.exception()))

    # the controller of this node

    def became_leader(self, epoch: int) -> None:
        self.active_in.append(epoch)

    def lost_leadership(self) -> None:
        self.resigned += 1

    async def append(self, *values: str) -> None:
        records: list[MetadataRecord] = [setting(value, value) for value in values]
        await self.quorum.append(records)

    @property
    def values(self) -> set[str]:
        return set(self.publisher.image.config(ResourceType.CLIENT_METRICS, "test"))


class Cluster:
    def __init__(self, directory: Path, count: int, **options: Any) -> None:
        self.nodes = [Node(i, directory / str(i), Proxy(), **options) for i in range(1, count + 1)]

    async def __aenter__(self) -> Cluster:
        for node in self.nodes:
            await node.proxy.start()
        await asyncio.gather(*(self.start(node) for node in self.nodes))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.kill()
            await node.proxy.stop()
        assert [node.failures for node in self.nodes if node.failures] == []

    @property
    def ports(self) -> dict[int, int]:
        return {node.node_id: node.proxy.port for node in self.nodes}

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.running]

    async def start(self, node: Node) -> None:
        await node.start(self.ports, formation=True)

    async def active(self, among: list[Node] | None = None) -> Node:
        """The node whose controller may write."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [n for n in among or self.running if n.quorum.is_active]
            return len(found) == 1

        await until(look)
        return found[0]

    async def grow(self, count: int = 3) -> Node:
        """Make voters of the first `count` nodes; gives the active one."""
        active = await self.active()
        for node in self.nodes[:count]:
            await until(lambda node=node: node.key in known(active))
            await make_voter(active, node)
        return active

    async def have(self, *values: str, among: list[Node] | None = None) -> None:
        await until(lambda: all(set(values) <= node.values for node in among or self.running))


def known(leader: Node) -> set[ReplicaKey]:
    leadership = leader.quorum.state.leadership
    return {leader.key, *(leadership.progress if leadership else ())}


def _resolve(answered: asyncio.Future[Any], response: object, _: object) -> None:
    answered.set_result(response)


async def make_voter(leader: Node, node: Node) -> None:
    from odradek_broker.raft.messages import AddVoterRequest
    from odradek_protocol.error_codes import ErrorCode

    endpoint = RaftEndpoint(LISTENER, "127.0.0.1", node.proxy.port)
    while not leader.quorum.state.voters.contains(node.key):
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = AddVoterRequest(Voter(node.key, (endpoint,)), 5000)
        leader.quorum.request(request, partial(_resolve, answered))
        response = await asyncio.wait_for(answered, PATIENCE_S)
        assert response.error in (ErrorCode.none, ErrorCode.request_timed_out), response
        if response.error is not ErrorCode.none:
            await asyncio.sleep(0.02)


async def until(condition: object) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)
