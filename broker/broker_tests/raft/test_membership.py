"""Voters with new disks and addresses, observers, and the formation of a quorum."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from broker_tests.raft.support import CONFIG, Cluster, Node, make_voter, until
from broker_tests.raft.test_service import remove, run
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.raft.log_files import VOTER_MARK
from odradek_broker.raft.messages import RemoveVoterRequest
from odradek_broker.raft.sender import WrongClusterError
from odradek_protocol.error_codes import ErrorCode
from odradek_testkit.proxy import Proxy


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
    def test_a_voter_whose_votes_were_deleted_does_not_vote(
        self, tmp_path: Path, deleted: str
    ) -> None:
        """1. __cluster_metadata-0, or the vote file in it, is deleted, but the directory id stays;
        2. that voter reports it and does not start; 3. removed, unmarked and added again it is
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

    def test_an_observer_may_lose_its_metadata_log(self, tmp_path: Path) -> None:
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
            # Nobody else is elected meanwhile, however busy the machine is.
            config = replace(CONFIG, fetch_timeout_ms=60_000, request_timeout_ms=60_000)
            async with Cluster(tmp_path, 3, config=config) as cluster:
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
    def test_a_first_start_waits_for_all_listed_voters(self, tmp_path: Path) -> None:
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
