"""A Kafka for tests: real brokers as child processes, ready in a tenth of a second.

With pytest, a fixture:

    def test_orders(kafka):                        # one broker per session, no topics left over
        kafka.topics.create("orders", partitions=3)
        run_my_app(bootstrap=kafka.bootstrap)
        assert kafka.read("orders", 2) == ["a", "b"]

    @pytest.mark.kafka(brokers=3, racks=["a", "b", "c"], config={"min.insync.replicas": 2})
    def test_failover(kafka):
        kafka.leader_of("orders", 0).kill()

In a script, unittest or an asyncio program:

    with Kafka(brokers=3) as kafka: ...
    async with Kafka() as kafka:
        await kafka.aio.read("orders", 2)

The brokers end with the test process, also after its kill -9. docs/how-to/testing.md is the guide.

    kafka > brokers, topics, groups, exchange > records      the API
    security > certificates                                  TLS, users, ACLs
    engines                                                  the processes
    ../pytest_plugin                                         the only module that imports pytest
"""

from odradek.testing.brokers import Broker
from odradek.testing.errors import UnsupportedError
from odradek.testing.kafka import Kafka
from odradek.testing.records import Difference, Record, Records
from odradek.testing.security import Login

__all__ = ["Broker", "Difference", "Kafka", "Login", "Record", "Records", "UnsupportedError"]
