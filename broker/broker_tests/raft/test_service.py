"""The quorum over sockets and files: elections, commits, failures, restarts, growth."""

import asyncio

from broker_tests.raft.support import Cluster


def run(story):
    asyncio.run(asyncio.wait_for(story(), 100))


class TestOneNode:
    def test_forms_alone_commits_and_remembers(self, tmp_path):
        async def story():
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


class TestThreeNodes:
    def test_form_grow_and_agree(self, tmp_path):
        async def story():
            async with Cluster(tmp_path, 3) as cluster:
                leader = await cluster.grow()
                assert leader.node_id == 1
                await leader.append("a", "b")
                await cluster.have("a", "b")
                offsets = [list(node.changes) for node in cluster.nodes]
                assert offsets[0] == offsets[1] == offsets[2]

        run(story)
