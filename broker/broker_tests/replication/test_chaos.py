"""Elections, paused leaders, cut connections: all replicas have what was acknowledged.

Logs are real files; there is one metadata log, which an isolated broker reads late.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from broker_tests.partition.support import TOPIC_ID, topic
from broker_tests.replication.support import ALL, Cluster, run, until
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId

ROUNDS = 60


class Chaos:
    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.acknowledged: list[str] = []
        self.elections = 0
        self.refused = 0
        self._produced = 0

    @property
    def registration(self) -> PartitionRegistration:
        return self.cluster.metadata.image.topics["orders"].partitions[0]

    async def produce(self, broker: BrokerId) -> None:
        """Produces to a broker that believes that it leads."""
        partition = self.cluster.nodes[broker].service.by_name["orders", 0]
        if partition.leading is None:
            return
        self._produced += 1
        value = f"value-{self._produced}"
        try:
            error = await asyncio.wait_for(self.cluster.produce(broker, value), 3)
        except (TimeoutError, KafkaError):
            self.refused += 1
            return
        if error is ErrorCode.none:
            self.acknowledged.append(value)
        else:
            self.refused += 1

    def fence(self, broker: BrokerId) -> None:
        """Cuts the leader off: the controller elects another one, unknown to the old leader."""
        cluster, now = self.cluster, self.registration
        isr = tuple(member for member in now.isr if member != broker)
        if broker in cluster.down or not isr or len(cluster.down) == 2:
            return
        cluster.metadata.hold_back(cluster.nodes[broker].service)
        cluster.down.add(broker)
        epoch = cluster.metadata.image.brokers[broker].epoch
        fenced = BrokerRegistrationChangeRecord(broker, epoch, fenced=1)
        if now.leader == broker:
            self.elections += 1
            leader = self.rng.choice(isr)
            cluster.commit(fenced, PartitionChangeRecord(0, TOPIC_ID, isr=isr, leader=leader))
        elif broker in now.isr:
            cluster.commit(fenced, PartitionChangeRecord(0, TOPIC_ID, isr=isr))
        else:
            cluster.commit(fenced)

    def unfence(self, broker: BrokerId) -> None:
        cluster = self.cluster
        if broker not in cluster.down:
            return
        cluster.down.discard(broker)
        cluster.metadata.release(cluster.nodes[broker].service)
        epoch = cluster.metadata.image.brokers[broker].epoch
        cluster.commit(BrokerRegistrationChangeRecord(broker, epoch, fenced=-1))

    def elect(self) -> None:
        usable = [member for member in self.registration.isr if member not in self.cluster.down]
        if usable:
            self.elections += 1
            self.cluster.elect(self.rng.choice(usable), TOPIC_ID)

    def cut(self) -> None:
        link = (self.rng.choice(ALL), self.rng.choice(ALL))
        self.cluster.cut ^= {link}

    async def run(self) -> None:
        writes: list[asyncio.Future[None]] = []
        for _ in range(ROUNDS):
            for broker in ALL:
                writes.append(asyncio.ensure_future(self.produce(broker)))
            broker = self.rng.choice(ALL)
            action = self.rng.random()
            if action < 0.15:
                self.fence(broker)
            elif action < 0.45:
                self.unfence(broker)
            elif action < 0.6:
                self.elect()
            elif action < 0.75:
                self.cut()
            await asyncio.sleep(self.rng.choice((0, 0.001, 0.01, 0.03)))
        self.cluster.cut.clear()
        for broker in ALL:
            self.unfence(broker)
        await asyncio.gather(*writes)


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_records_survive(tmp_path: Path, seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commit(*topic())
        chaos = Chaos(cluster, Random(seed))
        await chaos.run()

        def alike() -> bool:
            logs = [cluster.partition(broker).log for broker in ALL]
            return len({(log.log_end_offset, log.high_watermark) for log in logs}) == 1

        await until(lambda: set(chaos.registration.isr) == set(ALL), 20)
        await until(alike, 20)
        logs = [cluster.values(broker) for broker in ALL]
        assert logs[0] == logs[1] == logs[2]
        assert len(set(logs[0])) == len(logs[0]), "nothing is there twice"
        missing = set(chaos.acknowledged) - set(logs[0])
        assert not missing, f"seed {seed}: acknowledged and lost: {missing}"
        assert len(chaos.acknowledged) > 10
        files = [cluster.partition(broker).log.segments[0].path(".log") for broker in ALL]
        contents = {Path(file).read_bytes() for file in files}
        assert len(contents) == 1
        print(f"{len(chaos.acknowledged)} acknowledged, {chaos.elections} elections")

    run(story, tmp_path, replica_lag_time_max_ms="300")
