"""A small typed client of Kafka's protocol, for programs that manage clusters.

    from odradek_protocol.client import KafkaClient
    from odradek_protocol.client.admin.topics import NewTopic, create_topics

    with KafkaClient("localhost:9092,localhost:9093") as client:
        failures = create_topics(client, [NewTopic("orders", partitions=6)])
        if "orders" in failures:
            raise failures["orders"]             # a BrokerError: … (TOPIC_ALREADY_EXISTS)
        print(sorted(client.metadata().topics))

`client.admin` has a function per admin request with typed arguments and results: topics, configs,
partitions (elections, reassignments), offsets, records, groups, share_groups, transactions,
quorum, brokers, log_dirs. For any other API, send a `Struct` with the names of Kafka's fields in
snake case:

    answer = client.call(AnyBroker(), ApiKey.DESCRIBE_CLUSTER, Struct(include_fenced_brokers=True))
    answer = client.call(Controller(), ApiKey.UNREGISTER_BROKER, Struct(broker_id=4))
    answers = client.each_broker(ApiKey.LIST_GROUPS, Struct())       # broker → answer or error

The client negotiates the version of each API with each broker, finds controller, coordinators and
leaders, follows them when they move, and repeats what may be repeated until the deadline
(`ClientSettings`). Failures are `ClientError`s; their text is one sentence that names the address,
the API and what to do. Calls block; there is no asyncio here. Producing and consuming at speed, or
in a classic group, are not the job of this package: it appends batches and reads from offsets for
programs that show records, and it is a member of share groups, which confluent-kafka is not.

    settings (addresses, time limits, the seam for TLS and SASL)
    security                       TLS and SASL from Java-style properties
    connection > versions          one broker: frames and versions
    pool                           the open connections
    routes, retries                which broker, and which requests may be repeated
    kafka_client                   all of it together
    leaders, fan_out               many brokers at once
    admin/                         typed requests
    fetching, producing            read from offsets, append batches; partitioner: of a key
    share_consumer > share_session a member of a share group
"""

from odradek_protocol.client.errors import BrokerError, ClientError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import (
    AnyBroker,
    Broker,
    Controller,
    Coordinator,
    CoordinatorType,
)
from odradek_protocol.client.settings import Address, ClientSettings
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

__all__ = [
    "Address",
    "AnyBroker",
    "ApiKey",
    "Broker",
    "BrokerError",
    "ClientError",
    "ClientSettings",
    "Controller",
    "Coordinator",
    "CoordinatorType",
    "KafkaClient",
    "Struct",
]
