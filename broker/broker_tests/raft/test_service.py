"""The quorum over sockets and files: elections, commits, failures, restarts, growth."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_tests.raft.support import CONFIG, Cluster, Node, make_voter, run_story, until
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.raft.config import SnapshotPolicy
from odradek_broker.raft.log_files import VOTER_MARK
from odradek_broker.raft.messages import RemoveVoterRequest
from odradek_broker.raft.sender import WrongClusterError
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_testkit.proxy import Proxy


def run(story: Any) -> None:
    run_story(story, seconds=100)


def others(node: Node) -> Any:
    """Everybody's requests except those of the node itself."""
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
    def test_form_grow_and_agree(self, tmp_path: Path) -> None:
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
        """1. the leader dies; 2. another leads, with all that was committed; 3. the old one
        comes back with a record that nobody else has, gives it up and catches up."""

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
        """1. nothing gets through to or from the leader; 2. the others elect one; 3. what the
        old one appends fails, with an outcome that it does not know; 4. healed, all agree."""

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
        """1. its process sleeps past the check-quorum deadline; 2. the first thing it does is
        append; 3. that fails as an append of one who leads no longer, and the node goes on."""

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
        """It asks for pre-votes in vain: when it is back, the epoch and the leader are the same."""

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


class TestMembership:
    def test_a_voter_with_an_empty_disk_has_a_new_identity(self, tmp_path: Path) -> None:
        """1. a voter comes back without its disk; 2. it follows, but its vote does not count;
        3. the old one is removed and the new one added."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                await leader.append("a")
                lost = next(node for node in cluster.nodes if node is not leader)
                await lost.kill()
                shutil.rmtree(lost.directory)
                at = cluster.nodes.index(lost)
                empty = Node(lost.node_id, lost.directory, lost.proxy)
                cluster.nodes[at] = empty
                await cluster.start(empty)
                await cluster.have("a")
                assert not empty.quorum.state.is_voter
                await until(lambda: empty.key in leader.quorum.observers())
                answer = await leader.quorum.change_voters(RemoveVoterRequest(lost.key))
                assert answer.error is ErrorCode.none
                await make_voter(leader, empty)
                await until(lambda: empty.quorum.state.is_voter)

        run(story)

    @pytest.mark.parametrize("deleted", [".", "quorum-state"])
    def test_a_voter_whose_memory_was_deleted_does_not_vote_on(
        self, tmp_path: Path, deleted: Any
    ) -> None:
        """1. somebody deletes __cluster_metadata-0, or the votes in it, and leaves the directory
        id; 2. that voter says so and does not start; 3. removed, unmarked and added it is
        another voter."""

        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                await leader.append("a")
                await cluster.have("a")
                forgetful = next(node for node in cluster.nodes if node is not leader)
                await until(lambda: forgetful.files.marked_voter)
                await forgetful.kill()
                remove(forgetful.directory / "__cluster_metadata-0" / deleted)
                with pytest.raises(LogDirConfigError, match="its vote is missing"):
                    await cluster.start(forgetful)
                await forgetful.kill()

                answer = await leader.quorum.change_voters(RemoveVoterRequest(forgetful.key))
                assert answer.error is ErrorCode.none
                (forgetful.directory / VOTER_MARK).unlink()
                await cluster.start(forgetful)
                await cluster.have("a")
                await until(lambda: forgetful.key in leader.quorum.observers())
                await make_voter(leader, forgetful)

        run(story)

    def test_an_observer_may_forget(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 2) as cluster:
                leader = await cluster.active()
                observer = next(node for node in cluster.nodes if node is not leader)
                await leader.append("a")
                await cluster.have("a")
                await observer.kill()
                remove(observer.directory / "__cluster_metadata-0")
                await cluster.start(observer)
                await cluster.have("a")

        run(story)

    def test_a_second_node_under_the_id_of_a_live_voter_is_no_candidate(
        self, tmp_path: Path
    ) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                voter = next(node for node in cluster.nodes if node is not leader)
                double = Node(voter.node_id, tmp_path / "double", Proxy())
                await double.proxy.start()
                cluster.nodes.append(double)
                await double.start({leader.node_id: leader.proxy.port})
                leadership = leader.quorum.state.leadership
                assert leadership is not None
                await until(lambda: double.key in leadership.progress)
                await leader.append("a")
                await until(lambda: "a" in double.values)
                assert double.key not in leader.quorum.observers()

        run(story)

    def test_a_node_that_moves_tells_its_new_address(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                moving = next(node for node in cluster.nodes if node is not leader)
                await moving.kill()
                await moving.proxy.stop()
                moving.proxy = Proxy()
                port = await moving.proxy.start()
                await cluster.start(moving)

                def known() -> bool:
                    endpoints = leader.quorum.state.voters.endpoints_of(moving.node_id)
                    return [endpoint.port for endpoint in endpoints] == [port]

                await until(known)

        run(story)

    def test_a_node_of_another_cluster_is_refused_with_the_reason(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 1) as cluster:
                leader = await cluster.active()
                stranger = Node(2, tmp_path / "2", Proxy(), cluster_id="another-cluster")
                await stranger.proxy.start()
                await stranger.start({1: leader.proxy.port})
                await until(lambda: stranger.failures)
                await stranger.kill()
                await stranger.proxy.stop()
                (failure,) = stranger.failures
                assert isinstance(failure, WrongClusterError)
                assert "another cluster" in str(failure)

        run(story)


class TestFormation:
    def test_waits_for_all_of_the_list(self, tmp_path: Path) -> None:
        async def story() -> None:
            cluster = Cluster(tmp_path, 3)
            for node in cluster.nodes:
                await node.proxy.start()
            try:
                for node in cluster.nodes[:2]:
                    await cluster.start(node)
                first = cluster.nodes[0]
                await until(lambda: first.quorum.waits_for.endswith("missing: [3]"))
                assert first.quorum.leader.leader_id is None
                await cluster.start(cluster.nodes[2])
                await cluster.active()
            finally:
                await cluster.__aexit__()

        run(story)

    def test_the_first_of_the_list_without_its_disk_joins_instead(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with Cluster(tmp_path, 3) as cluster:
                first = await cluster.grow()
                await first.append("a")
                await cluster.have("a")
                await first.kill()
                shutil.rmtree(first.directory)
                empty = Node(1, first.directory, first.proxy)
                cluster.nodes[0] = empty
                await cluster.active()
                await cluster.start(empty)
                await cluster.have("a")
                assert not empty.quorum.state.is_voter
                assert empty.quorum.epoch > 1

        run(story)


class TestFailures:
    def test_a_disk_that_fails_ends_the_part_in_the_quorum(
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
