"""Requests to the active controller: on this broker, on another one, and while it changes."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker_tests.raft.support import Cluster, Node, run_story, until
from odradek_broker.controller_client.channel import ControllerChannel
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

VOTE = (52, 2)  # any API that the nodes of the test serve will do


def channel(node: Node, local: Any) -> ControllerChannel:
    loop = asyncio.get_running_loop()
    return ControllerChannel(node.quorum, {52: local}, loop, f"broker-{node.node_id}-test")


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_story(story, seconds=60)


def nonsense(node: Node) -> Struct:
    """A request that every node refuses with INVALID_REQUEST."""
    return Struct(cluster_id=node.cluster_id, voter_id=1, topics=[])


async def local(_: Struct) -> Struct:
    return Struct(error_code=ErrorCode.none, here=True)


class TestChannel:
    def test_on_the_controller_a_request_is_a_local_call(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1) as cluster:
                node = await cluster.active()
                answer = await channel(node, local).call(*VOTE, nonsense(node), 1000)
                assert answer.here

                async def refuses(_: Struct) -> Struct:
                    raise KafkaError(ErrorCode.duplicate_voter, "twice")

                answer = await channel(node, refuses).call(*VOTE, nonsense(node), 1000)
                assert (answer.error_code, answer.error_message) == (
                    ErrorCode.duplicate_voter,
                    "twice",
                )

        run(story)

    def test_other_brokers_send_the_request_to_the_controller(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 2) as cluster:
                active = await cluster.active()
                (other,) = [node for node in cluster.nodes if node is not active]
                way = channel(other, local)
                answer = await way.call(*VOTE, nonsense(other), 20_000)
                assert answer.error_code is ErrorCode.invalid_request
                way.close()

        run(story)

    def test_a_missing_controller_is_reported_after_the_timeout(self, tmp_path: Path) -> None:
        async def story() -> None:
            cluster = Cluster(tmp_path, 2)
            node = cluster.nodes[0]
            await node.proxy.start()
            await cluster.start(node)
            try:
                with pytest.raises(PeerUnavailable, match="no leader"):
                    await channel(node, local).call(*VOTE, nonsense(node), 150)
            finally:
                await node.kill()
                await node.proxy.stop()

        run(story)

    def test_a_request_is_repeated_while_the_controller_moves(self, tmp_path: Path) -> None:
        """1. a request waits for an isolated controller; 2. another is elected; 3. it answers."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                old = await cluster.grow()
                asks = next(node for node in cluster.nodes if node is not old)
                way = channel(asks, local)
                await until(lambda: asks.quorum.leader_address() is not None)
                for node in cluster.nodes:
                    if node is old:
                        node.proxy.block(lambda _: True)
                    else:
                        node.proxy.block(lambda client_id: client_id.startswith("broker-1-"))
                answer = await way.call(*VOTE, nonsense(asks), 20_000)
                assert asks.quorum.leader.leader_id not in (None, old.node_id)
                if answer.error_code is ErrorCode.none:
                    assert asks.quorum.is_active
                for node in cluster.nodes:
                    node.proxy.heal()
                way.close()

        run(story)

    def test_a_request_is_repeated_when_a_controller_was_deposed(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1) as cluster:
                node = await cluster.active()
                answers = iter((ErrorCode.not_controller, ErrorCode.not_controller, ErrorCode.none))

                async def moving(_: Struct) -> Struct:
                    code = next(answers)
                    if code is ErrorCode.not_controller:
                        raise KafkaError(code)
                    return Struct(error_code=code)

                answer = await channel(node, moving).call(*VOTE, nonsense(node), 10_000)
                assert answer.error_code is ErrorCode.none

        run(story)
