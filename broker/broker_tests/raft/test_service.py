"""The quorum over sockets and files: elections, commits, failures, restarts, growth."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_tests.raft.support import CONFIG, Cluster, Node, run_story, until
from odradek_broker.raft.config import SnapshotPolicy
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_testkit.proxy import Proxy


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_story(story, seconds=100)


def others(node: Node) -> Any:
    """The requests of all other nodes."""
    return lambda client_id: not client_id.startswith(f"broker-{node.node_id}-")


def isolate(cluster: Cluster, lonely: Node) -> None:
    """Nothing reaches the node, and nothing that it sends arrives."""
    for node in cluster.nodes:
        if node is lonely:
            node.proxy.block(lambda _: True)
        else:
            node.proxy.block(lambda client_id: not others(lonely)(client_id))


def heal(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.proxy.heal()


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


class TestOneNode:
    def test_forms_alone_commits_and_remembers(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1) as cluster:
                node = await cluster.active()
                await asyncio.gather(node.append("a"), node.append("b"), node.append("c"))
                assert node.values == {"a", "b", "c"}
                epoch = node.quorum.epoch
                await node.kill()
                await cluster.start(node)
                await cluster.active()
                assert node.quorum.epoch > epoch
                assert node.values == {"a", "b", "c"}
                await node.append("d")
                assert node.active_in[-1] == node.changes[-1][1] == node.quorum.epoch

        run(story)

    def test_only_the_leader_can_append(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 2) as cluster:
                leader = await cluster.active()
                (other,) = [node for node in cluster.nodes if node is not leader]
                await leader.append("a")
                await cluster.have("a")
                with pytest.raises(KafkaError) as refused:
                    await other.append("b")
                assert refused.value.code is ErrorCode.not_controller

        run(story)


class TestThreeNodes:
    def test_a_quorum_forms_grows_and_agrees(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                assert leader.node_id == 1  # the lowest id forms the cluster
                await leader.append("a", "b")
                await cluster.have("a", "b")
                changes = [node.changes for node in cluster.nodes]
                assert changes[0] == changes[1] == changes[2]
                offsets = [offset for offset, _ in changes[0]]
                assert offsets == sorted(set(offsets))

        run(story)

    def test_the_leader_dies_and_comes_back(self, tmp_path: Path) -> None:
        """1. the leader dies; 2. another leads, with all committed records; 3. the old one
        comes back with an uncommitted record, truncates it and catches up."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                old = await cluster.grow()
                await old.append("before")
                await old.kill()
                new = await cluster.active()
                assert new is not old
                assert "before" in new.values
                assert new.active_in[-1] > old.active_in[-1]
                await new.append("after")
                await cluster.start(old)
                await cluster.have("before", "after")
                await new.append("all")
                await cluster.have("all")

        run(story)

    def test_a_leader_whose_process_is_gone_is_replaced_before_the_fetch_timeout(
        self, tmp_path: Path
    ) -> None:
        async def story() -> None:
            config = replace(CONFIG, fetch_timeout_ms=60_000, request_timeout_ms=60_000)
            async with Cluster(tmp_path, 3, config=config) as cluster:
                old = await cluster.grow()
                await old.append("a")
                await cluster.have("a")
                await old.proxy.stop()
                await old.kill()
                new = await cluster.active()
                await new.append("b")

        run(story)

    def test_an_isolated_leader_commits_nothing_and_gives_up(self, tmp_path: Path) -> None:
        """1. the leader is cut off in both directions; 2. the others elect another; 3. appends of
        the old leader fail with an unknown outcome; 4. after the heal all logs are equal."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                old = await cluster.grow()
                await old.append("before")
                isolate(cluster, old)
                lost = asyncio.ensure_future(old.append("lost"))
                rest = [node for node in cluster.nodes if node is not old]
                new = await cluster.active(rest)
                await new.append("after")
                with pytest.raises(KafkaError) as unknown:
                    await lost
                assert unknown.value.code is ErrorCode.not_controller
                assert not old.quorum.is_active
                assert old.resigned == 1
                assert "lost" not in old.values
                heal(cluster)
                await cluster.have("before", "after")
                assert all("lost" not in node.values for node in cluster.nodes)

        run(story)

    def test_a_leader_that_was_stopped_for_long_finds_out_when_it_appends(
        self, tmp_path: Path
    ) -> None:
        """1. its process is paused past the check-quorum deadline; 2. the first event after that is
        an append; 3. it fails because the node no longer leads, and the node keeps running."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                old = await cluster.grow()
                await old.append("before")
                await cluster.have("before")
                end = old.quorum.next_offset
                old.clock.slept_ms += CONFIG.check_quorum_ms + 1
                assert old.quorum.is_active  # as far as it knows
                with pytest.raises(KafkaError) as refused:
                    await old.append("lost")
                assert refused.value.code is ErrorCode.not_controller
                assert not old.quorum.is_active
                assert old.resigned == 1
                assert old.quorum.next_offset == end
                new = await cluster.active()
                await new.append("after")
                await cluster.have("before", "after")
                assert all("lost" not in node.values for node in cluster.nodes)

        run(story)

    def test_an_isolated_follower_disturbs_nobody(self, tmp_path: Path) -> None:
        """Its pre-votes are not granted: when it is back, the epoch and the leader are the same."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                epoch = leader.quorum.epoch
                lonely = next(node for node in cluster.nodes if node is not leader)
                isolate(cluster, lonely)
                await until(lambda: lonely.quorum.state.election is not None)
                await leader.append("meanwhile")
                heal(cluster)
                await cluster.have("meanwhile")
                assert (await cluster.active()).quorum.epoch == epoch

        run(story)

    def test_a_leader_that_resigns_is_followed_at_once(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                old = await cluster.grow()
                await old.append("a")
                await cluster.have("a")
                await old.quorum.resign(10_000)
                assert old.quorum.leader.leader_id not in (None, old.node_id)
                new = await cluster.active()
                await new.append("b")
                await cluster.have("b")

        run(story)

    def test_two_of_three_at_once_stop_it_and_one_of_them_back_starts_it(
        self, tmp_path: Path
    ) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                await leader.append("a")
                await cluster.have("a")
                dead = [node for node in cluster.nodes if node is not leader]
                for node in dead:
                    await node.kill()
                await until(lambda: not leader.quorum.is_active)
                await cluster.start(dead[0])
                new = await cluster.active()
                await new.append("b")

        run(story)


OFTEN = SnapshotPolicy(record_bytes_max=2000)


class TestSnapshots:
    def test_a_follower_too_far_behind_fetches_a_snapshot(self, tmp_path: Path) -> None:
        """1. a voter is down while two snapshots are written and the log is trimmed; 2. it
        starts, fetches the newest snapshot and then the rest; 3. and starts again from it."""

        async def story() -> None:
            async with Cluster(tmp_path, 3, policy=OFTEN) as cluster:
                leader = await cluster.grow()
                late = next(node for node in cluster.nodes if node is not leader)
                await late.kill()
                end = late.files.end_offset
                written: list[Any] = []
                while leader.quorum.state.log.start.offset <= end:
                    written.append(f"n{len(written)}-{'x' * 200}")
                    await leader.append(written[-1])
                    await asyncio.sleep(0)
                await cluster.start(late)
                await cluster.have(*written)
                assert late.files.start_offset > end
                assert late.quorum.state.voters == leader.quorum.state.voters
                await late.kill()
                await cluster.start(late)
                await leader.append("last")
                await cluster.have(*written, "last")

        run(story)

    def test_a_new_node_gets_everything_from_the_snapshot(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1, policy=OFTEN) as cluster:
                leader = await cluster.active()
                written = [f"n{i}-{'x' * 100}" for i in range(100)]
                for value in written:
                    await leader.append(value)
                await until(lambda: leader.quorum.state.log.start.offset > 0)
                new = Node(9, tmp_path / "9", Proxy())
                await new.proxy.start()
                cluster.nodes.append(new)
                await new.start(cluster.ports)
                await cluster.have(*written)

        run(story)


class TestFailures:
    def test_a_failed_disk_ends_participation_in_the_quorum(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1) as cluster:
                node = await cluster.active()
                monkeypatch.setattr(type(node.files), "flush", fails)
                with pytest.raises(KafkaError) as failed:
                    await node.append("a")
                assert failed.value.code is ErrorCode.kafka_storage_error
                assert not node.quorum.is_active
                assert [str(error) for error in node.failures] == ["[Errno 5] no disk"]
                node.failures.clear()

        run(story)

    def test_a_vote_that_cannot_be_written_is_not_given(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1) as cluster:
                node = await cluster.active()
                await node.kill()
                monkeypatch.setattr(type(node.files), "write_vote", fails)
                await cluster.start(node)
                await until(lambda: node.failures)
                assert not node.quorum.is_active
                node.failures.clear()

        run(story)


def fails(*_: object) -> None:
    raise OSError(5, "no disk")
