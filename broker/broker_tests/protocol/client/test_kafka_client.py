"""The client of a cluster: look-ups, retries, deadlines and many brokers at once, scripted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from broker_tests.protocol.client.scripted_server import ScriptedServer
from odradek_protocol.client import (
    AnyBroker,
    Broker,
    BrokerError,
    ClientError,
    ClientSettings,
    Controller,
    Coordinator,
    CoordinatorType,
    KafkaClient,
)
from odradek_protocol.client.admin.groups import list_groups
from odradek_protocol.client.admin.offsets import LATEST, list_offsets
from odradek_protocol.client.admin.topics import NewTopic, create_topics
from odradek_protocol.client.errors import (
    AnswerTimeoutError,
    DisconnectedError,
    NoBrokerError,
    UnknownBrokerError,
    UnreachableError,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ports import free_port

GROUP = Coordinator(CoordinatorType.GROUP, "billing")
CLUSTER = Struct(cluster_id="scripted", brokers=[])
SOON = ClientSettings(deadline_s=0.3, request_timeout_s=0.2, connect_timeout_s=0.2)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


def in_turn(*answers: Struct | bytes | None) -> Callable[[Struct], Struct | bytes | None]:
    """Answers in the order of requests; the last answer is repeated."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def dead_address() -> str:
    return f"127.0.0.1:{free_port()}"


# -- any broker ------------------------------------------------------------------------------------


def test_the_first_address_that_answers_is_used(server: ScriptedServer) -> None:
    server.lead()
    with KafkaClient(f"{dead_address()},{server.bootstrap}") as client:
        assert client.metadata().cluster_id == "scripted"
        assert client.metadata().brokers.keys() == {1}
    assert server.connections == 1, "the connection is kept"


def test_no_broker_answers_and_each_address_is_named() -> None:
    first, second = dead_address(), dead_address()
    with KafkaClient(f"{first},{second}") as client, pytest.raises(NoBrokerError) as caught:
        client.metadata()
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_a_read_is_repeated_on_a_new_connection_when_the_old_one_breaks(
    server: ScriptedServer,
) -> None:
    server.on(ApiKey.DESCRIBE_CLUSTER, in_turn(None, None, CLUSTER))
    with KafkaClient(server.bootstrap) as client:
        assert client.call(AnyBroker(), ApiKey.DESCRIBE_CLUSTER, Struct()) is not None
    assert server.count(ApiKey.DESCRIBE_CLUSTER) == 3


def test_a_read_goes_to_another_broker_when_the_first_hangs(server: ScriptedServer) -> None:
    server.on(ApiKey.DESCRIBE_CLUSTER, lambda _: CLUSTER)
    going_on = threading.Event()
    settings = ClientSettings(read_timeout_s=0.1)
    with ScriptedServer() as hung:
        hung.on(ApiKey.DESCRIBE_CLUSTER, lambda _: CLUSTER if going_on.wait() else None)
        with KafkaClient(f"{hung.bootstrap},{server.bootstrap}", settings) as client:
            answer = client.call(AnyBroker(), ApiKey.DESCRIBE_CLUSTER, Struct())
        going_on.set()
    assert answer.cluster_id == "scripted"
    assert hung.count(ApiKey.DESCRIBE_CLUSTER) == 1


def test_a_change_is_not_repeated_when_it_may_have_been_made(server: ScriptedServer) -> None:
    server.lead()
    server.on(ApiKey.CREATE_TOPICS, lambda _: None)
    with KafkaClient(server.bootstrap) as client:
        with pytest.raises(DisconnectedError, match="CREATE_TOPICS"):
            create_topics(client, [NewTopic("orders")])
        assert server.count(ApiKey.CREATE_TOPICS) == 1


def test_a_connection_that_the_broker_closed_while_idle_is_made_anew(
    server: ScriptedServer,
) -> None:
    server.lead()
    server.on(ApiKey.CREATE_TOPICS, lambda _: Struct(topics=[]))
    with KafkaClient(server.bootstrap) as client:
        client.metadata()
        server.close_connections()
        assert create_topics(client, [NewTopic("orders")]) == {}
    assert server.connections == 2


def test_threads_share_a_connection(server: ScriptedServer) -> None:
    """Each gets its own answer; an unread answer is not taken for a closed connection."""
    server.on(ApiKey.METADATA, lambda r: Struct(topics=[Struct(name=r.topics[0].name)]))
    seen: dict[str, list[set[str]]] = {f"topic-{n}": [] for n in range(8)}
    with KafkaClient(server.bootstrap) as client:

        def ask(name: str) -> None:
            for _ in range(25):
                seen[name].append(set(client.metadata([name]).topics))

        client.metadata(["first"])
        threads = [threading.Thread(target=ask, args=(name,)) for name in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == {name: [{name}] * 25 for name in seen}
    assert server.connections == 1


# -- controller, broker, coordinator ---------------------------------------------------------------


def test_the_controller_is_looked_up_again_when_it_moved(server: ScriptedServer) -> None:
    with ScriptedServer() as other:
        brokers = [server.node(1), other.node(2)]
        server.on(
            ApiKey.METADATA,
            in_turn(
                Struct(brokers=brokers, controller_id=2), Struct(brokers=brokers, controller_id=1)
            ),
        )
        refused = Struct(name="orders", error_code=ErrorCode.not_controller)
        other.on(ApiKey.CREATE_TOPICS, lambda _: Struct(topics=[refused]))
        server.on(ApiKey.CREATE_TOPICS, lambda _: Struct(topics=[Struct(name="orders")]))
        with KafkaClient(server.bootstrap) as client:
            assert create_topics(client, [NewTopic("orders")]) == {}
        assert other.count(ApiKey.CREATE_TOPICS) == 1
        assert server.count(ApiKey.CREATE_TOPICS) == 1


def test_a_controller_that_cannot_be_reached_is_looked_up_again(server: ScriptedServer) -> None:
    gone = Struct(node_id=2, host="127.0.0.1", port=free_port())
    brokers = [server.node(1), gone]
    server.on(
        ApiKey.METADATA,
        in_turn(Struct(brokers=brokers, controller_id=2), Struct(brokers=brokers, controller_id=1)),
    )
    server.on(ApiKey.CREATE_TOPICS, lambda _: Struct(topics=[]))
    with KafkaClient(server.bootstrap) as client:
        assert create_topics(client, [NewTopic("orders")]) == {}


def test_retries_end_at_the_deadline_with_the_brokers_error(server: ScriptedServer) -> None:
    server.lead()
    refused = Struct(name="orders", error_code=ErrorCode.not_controller, error_message="moved")
    server.on(ApiKey.CREATE_TOPICS, lambda _: Struct(topics=[refused]))
    expected = pytest.raises(BrokerError, match=r"moved \(NOT_CONTROLLER\)")
    with KafkaClient(server.bootstrap, SOON) as client, expected:
        create_topics(client, [NewTopic("orders")])
    assert server.count(ApiKey.CREATE_TOPICS) > 1


def test_other_errors_are_not_repeated(server: ScriptedServer) -> None:
    server.lead()
    refused = Struct(name="orders", error_code=ErrorCode.topic_already_exists)
    server.on(ApiKey.CREATE_TOPICS, lambda _: Struct(topics=[refused]))
    with KafkaClient(server.bootstrap) as client:
        failures = create_topics(client, [NewTopic("orders")])
    assert failures["orders"].name == "TOPIC_ALREADY_EXISTS"
    assert server.count(ApiKey.CREATE_TOPICS) == 1


def test_a_broker_that_the_cluster_does_not_have(server: ScriptedServer) -> None:
    server.lead(broker_id=4)
    expected = pytest.raises(UnknownBrokerError, match=r"no live broker 99 .* live are: 4")
    with KafkaClient(server.bootstrap) as client, expected:
        client.call(Broker(99), ApiKey.DESCRIBE_CONFIGS, Struct())


def test_a_dead_broker_is_not_waited_for(server: ScriptedServer) -> None:
    gone = Struct(node_id=2, host="127.0.0.1", port=free_port())
    server.on(ApiKey.METADATA, lambda _: Struct(brokers=[server.node(1), gone]))
    expected = pytest.raises(UnreachableError, match=str(gone.port))
    with KafkaClient(server.bootstrap) as client, expected:
        client.call(Broker(2), ApiKey.DESCRIBE_CONFIGS, Struct())


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_that_is_not_there_yet_and_then_moves(
    server: ScriptedServer, version: int
) -> None:
    def found(code: ErrorCode) -> Struct:
        node = Struct(**vars(server.node(1)), error_code=code)
        return node if version < 4 else Struct(coordinators=[Struct(key="billing", **vars(node))])

    server.versions[ApiKey.FIND_COORDINATOR] = range(0, version + 1)
    server.on(
        ApiKey.FIND_COORDINATOR,
        in_turn(found(ErrorCode.coordinator_not_available), found(ErrorCode.none)),
    )
    answers = [
        Struct(results=[Struct(group_id="billing", error_code=code)])
        for code in (ErrorCode.not_coordinator, ErrorCode.none)
    ]
    server.on(ApiKey.DELETE_GROUPS, in_turn(*answers))
    with KafkaClient(server.bootstrap) as client:
        request = Struct(groups_names=["billing"])
        (result,) = client.call(GROUP, ApiKey.DELETE_GROUPS, request).results
        assert result.error_code == ErrorCode.none
    assert server.count(ApiKey.FIND_COORDINATOR) == 3
    assert server.count(ApiKey.DELETE_GROUPS) == 2


# -- many brokers ----------------------------------------------------------------------------------


def test_every_broker_is_asked_and_a_dead_one_costs_the_others_nothing(
    server: ScriptedServer,
) -> None:
    server.lead()
    server.on(ApiKey.LIST_GROUPS, lambda _: Struct(groups=[]))
    going_on = threading.Event()
    with ScriptedServer() as hung, KafkaClient(server.bootstrap, SOON) as client:
        hung.on(ApiKey.LIST_GROUPS, lambda _: Struct(groups=[]) if going_on.wait() else None)
        addresses = {1: server.address, 2: hung.address, 3: hung.address._replace(port=free_port())}
        answers = client.each_broker(ApiKey.LIST_GROUPS, Struct(), addresses)
        going_on.set()
    assert isinstance(answers[1], Struct)
    assert isinstance(answers[2], AnswerTimeoutError)
    assert isinstance(answers[3], UnreachableError)


def test_a_coordinator_that_loads_is_asked_again(server: ScriptedServer) -> None:
    server.lead()
    group = Struct(group_id="billing", protocol_type="consumer", group_state="Empty")
    server.on(
        ApiKey.LIST_GROUPS,
        in_turn(Struct(error_code=ErrorCode.coordinator_load_in_progress), Struct(groups=[group])),
    )
    with KafkaClient(server.bootstrap) as client:
        assert [one.group_id for one in list_groups(client)] == ["billing"]
    assert server.count(ApiKey.LIST_GROUPS) == 2


def partition(number: int, leader: int) -> Struct:
    return Struct(partition_index=number, leader_id=leader, replica_nodes=[1], isr_nodes=[1])


def offsets(*results: tuple[int, ErrorCode, int]) -> Struct:
    partitions = [Struct(partition_index=n, error_code=e, offset=o) for n, e, o in results]
    return Struct(topics=[Struct(name="t", partitions=partitions)])


def test_only_the_partitions_that_moved_are_asked_for_again(server: ScriptedServer) -> None:
    topics = [
        [Struct(name="t", partitions=[partition(0, 1), partition(1, 1), partition(2, -1)])],
        [Struct(name="t", partitions=[partition(1, 1), partition(2, 1)])],
    ]
    server.on(
        ApiKey.METADATA, in_turn(*(Struct(brokers=[server.node(1)], topics=t) for t in topics))
    )
    server.on(
        ApiKey.LIST_OFFSETS,
        in_turn(
            offsets((0, ErrorCode.none, 0), (1, ErrorCode.not_leader_or_follower, -1)),
            offsets((1, ErrorCode.none, 11), (2, ErrorCode.none, 12)),
        ),
    )
    places = [TopicPartition("t", n) for n in (0, 1, 2, 7)]
    with KafkaClient(server.bootstrap) as client:
        found = list_offsets(client, places, LATEST)
    assert [found[place] for place in places[:3]] == [0, 11, 12]
    missing = found[places[3]]
    assert isinstance(missing, BrokerError)
    assert missing.name == "UNKNOWN_TOPIC_OR_PARTITION"
    second = server.requests[-1][2].topics[0].partitions
    assert [p.partition_index for p in second] == [1, 2]


def test_partitions_without_a_leader_end_with_the_deadline(server: ScriptedServer) -> None:
    server.lead(topics=[Struct(name="t", partitions=[partition(0, -1)])])
    with KafkaClient(server.bootstrap, SOON) as client:
        found = list_offsets(client, [TopicPartition("t", 0)], LATEST)
    (error,) = found.values()
    assert isinstance(error, ClientError)
    assert "LEADER_NOT_AVAILABLE" in str(error)
    assert server.count(ApiKey.METADATA) > 1


def test_the_controller_route_needs_no_controller_in_metadata(server: ScriptedServer) -> None:
    """Between two controllers metadata names none: any broker forwards or refuses the request."""
    server.on(ApiKey.METADATA, lambda _: Struct(brokers=[server.node(1)], controller_id=-1))
    server.on(ApiKey.UNREGISTER_BROKER, lambda _: Struct())
    with KafkaClient(server.bootstrap) as client:
        answer = client.call(Controller(), ApiKey.UNREGISTER_BROKER, Struct(broker_id=3))
        assert answer.error_code == 0
