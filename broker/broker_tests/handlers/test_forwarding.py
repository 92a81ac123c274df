"""A client's request in an envelope: what the controller receives, and what the client gets."""

import asyncio
from types import SimpleNamespace
from typing import Never, cast
from uuid import uuid4

import pytest

from broker_tests.security.support import allow
from broker_tests.sim.mutants import Mutant
from odradek_broker.controller.topics import Charge
from odradek_broker.handlers import envelope, registry
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.records import AccessControlEntryRecord
from odradek_broker.model.acl import CLUSTER_NAME
from odradek_broker.model.principal import ANONYMOUS, Principal
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.security.authorizer import Authorizer
from odradek_protocol.acl_codes import AclOperation, AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

VERSION = 7
TOPICS = [Struct(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[])]


class Context(RequestContext):
    sender = ANONYMOUS

    @property
    def principal(self) -> Principal:
        return self.sender

    def respond(self, chunks: object, size: object) -> Never:
        raise AssertionError

    def disconnect(self, reason: object) -> Never:
        raise AssertionError


def broker(**services: object) -> SimpleNamespace:
    listeners = SimpleNamespace(from_brokers=("PLAINTEXT",), to_quorum=("PLAINTEXT",))
    return SimpleNamespace(
        cluster_id="c",
        settings=SimpleNamespace(listeners=listeners),
        **{"authorizer": None, **services},
    )


def context(broker_: SimpleNamespace, api_key: int, version: int) -> Context:
    return Context(
        cast(BrokerContext, broker_), api_key, version, 9, "client", "PLAINTEXT", "10.1.2.3"
    )


class ControllerNode:
    """The broker of the active controller, reached through real envelopes."""

    def __init__(self, create_topics: object, *, active: bool = True) -> None:
        async def wait_until(condition: object, timeout_ms: float) -> bool:
            return True

        self.broker = broker(
            apis=registry.build_apis(Metrics()),
            controller=SimpleNamespace(is_active=active, create_topics=create_topics),
            metadata=SimpleNamespace(wait_until=wait_until),
            partitions=SimpleNamespace(is_opening=lambda _: False),
        )
        self.answers: list[Struct] = []
        self.sender = ANONYMOUS

    async def run(self, here: object, there: tuple[int, int, Struct], timeout_ms: float) -> Struct:
        key, version, message = there
        received = api.decode_request(key, version, api.encode_request(key, version, message))
        ctx = context(self.broker, key, version)
        ctx.sender = self.sender
        try:
            answer = await self.broker.apis.handlers[key].handle(ctx, received)
        except KafkaError as error:  # as the dispatcher answers it
            answer = Struct(error_code=error.code)
        self.answers.append(answer)
        if ErrorCode(answer.error_code) is ErrorCode.not_controller:
            raise PeerUnavailable("moved")
        return api.decode_response(key, version, api.encode_response(key, version, answer))


def with_rights(**rights: list[str]) -> Authorizer:
    """Rights of users on the cluster."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for user, operations in rights.items():
        for operation in operations:
            acl = allow(AclOperation[operation], AclResource.CLUSTER, CLUSTER_NAME, f"User:{user}")
            delta.replay(AccessControlEntryRecord(uuid4(), *acl))
    authorizer = Authorizer()
    authorizer.apply(delta.finish(1))
    return authorizer


async def never(request: Struct) -> Struct:
    raise AssertionError("decided locally")


async def ask(node: ControllerNode, request: Struct, key: int = 19) -> Struct:
    ctx = context(broker(forwarder=node, controller=None), key, VERSION)
    return await to_controller(ctx, request, never)


def request() -> Struct:
    return Struct(topics=TOPICS, timeout=1000, validate_only=False)


def creates_a_topic(broker_rights: list[str], client_rights: list[str]) -> bool:
    """Whether the controller creates the topic of a client whose request a broker forwards."""

    async def story() -> Struct:
        async def decide(asked: Struct, _charge: Charge) -> Struct:
            return Struct(topics=[Struct(name=t.name, error_code=0) for t in asked.topics])

        node = ControllerNode(decide)
        node.sender = Principal("User", "broker")
        node.broker.authorizer = with_rights(broker=broker_rights, client=client_rights)
        ctx = context(broker(forwarder=node, controller=None), 19, VERSION)
        ctx.sender = Principal("User", "client")
        return await to_controller(ctx, request(), never)

    return asyncio.run(story()).topics[0].error_code is ErrorCode.none


def open_as_the_broker(ctx: RequestContext, asked: Struct) -> envelope.Forwarded:
    """A bug to plant: the principal in the envelope is ignored."""
    return envelope.Forwarded(ctx, ctx.principal, ctx.client_host, asked.request_data)


class TestEnvelope:
    def test_the_controller_answers_as_if_the_client_had_asked_it(self) -> None:
        async def story() -> None:
            seen = []

            async def decide(asked: Struct, _charge: Charge) -> Struct:
                seen.append(asked)
                return Struct(topics=[Struct(name="a", error_code=ErrorCode.invalid_partitions)])

            answer = await ask(ControllerNode(decide), request())
            assert [topic.name for topic in seen[0].topics] == ["a"]
            assert answer.topics[0].error_code is ErrorCode.invalid_partitions

        asyncio.run(story())

    @pytest.mark.parametrize("active", [True, False])
    def test_a_deposed_controller_is_never_visible_to_the_client(self, active: bool) -> None:
        """Also where the handler turns every error into an answer, as CreateTopics does."""

        async def story() -> None:
            async def decide(_: Struct, _charge: Charge) -> Struct:
                raise KafkaError(ErrorCode.not_controller)

            node = ControllerNode(decide, active=active)
            with pytest.raises(KafkaError) as refused:
                await ask(node, request())
            assert refused.value.code is ErrorCode.request_timed_out
            assert node.answers[0].error_code is ErrorCode.not_controller

        asyncio.run(story())

    def test_other_refusals_come_back(self) -> None:
        async def story() -> None:
            async def decide(_: Struct, _charge: Charge) -> Struct:
                raise KafkaError(ErrorCode.kafka_storage_error, "no disk")

            answer = await ask(ControllerNode(decide), request())
            topic = answer.topics[0]
            assert (topic.error_code, topic.error_message) == (
                ErrorCode.kafka_storage_error,
                "no disk",
            )

        asyncio.run(story())

    @pytest.mark.parametrize(
        ("broker_rights", "client_rights", "created"),
        [(["CLUSTER_ACTION", "CREATE"], [], False), (["CLUSTER_ACTION"], ["CREATE"], True)],
    )
    def test_the_request_inside_is_authorised_as_the_client(
        self, broker_rights: list[str], client_rights: list[str], created: bool
    ) -> None:
        assert creates_a_topic(broker_rights, client_rights) is created

    def test_a_planted_bug_that_authorises_the_broker_instead_is_found(self) -> None:
        """With the bug, the test above would fail."""
        planted = Mutant("envelope-as-broker", ((envelope, "_open", open_as_the_broker),))
        with planted.planted():
            assert creates_a_topic(["CLUSTER_ACTION", "CREATE"], [])
            assert not creates_a_topic(["CLUSTER_ACTION"], ["CREATE"])

    def test_only_brokers_may_send_one(self) -> None:
        async def story() -> None:
            node = ControllerNode(None)
            node.broker.authorizer = with_rights(broker=["CREATE"], client=["CREATE"])
            node.sender = Principal("User", "broker")
            with pytest.raises(KafkaError) as refused:
                await ask(node, request())
            assert refused.value.code is ErrorCode.cluster_authorization_failed

        asyncio.run(story())

    def test_a_principal_that_cannot_be_read(self) -> None:
        async def story() -> None:
            node = ControllerNode(None)
            message = Struct(
                request_data=api.request_header(19, VERSION, 0, "c")
                + api.encode_request(19, VERSION, request()),
                request_principal=b"\0\1nonsense",
                client_host_address=b"\x7f\0\0\1",
            )
            answer = await node.run(None, (58, 0, message), 1000.0)
            assert answer.error_code is ErrorCode.principal_deserialization_failure

        asyncio.run(story())

    def test_requests_that_no_controller_decides_are_refused(self) -> None:
        async def story() -> None:
            node = ControllerNode(None)
            metadata = Struct(topics=None, allow_auto_topic_creation=True)
            ctx = context(broker(forwarder=node, controller=None), 3, 12)
            with pytest.raises(KafkaError) as refused:
                await to_controller(ctx, metadata, never)
            assert refused.value.code is ErrorCode.invalid_request

        asyncio.run(story())

    @pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\0\x13\0\x07" + b"\0" * 4])
    def test_garbage_in_an_envelope_is_refused(self, data: bytes) -> None:
        async def story() -> None:
            node = ControllerNode(None)
            message = Struct(
                request_data=data, request_principal=None, client_host_address=b"\x0a\1\2\3"
            )
            answer = await envelope.handle(context(node.broker, 58, 0), message)
            assert answer.error_code is ErrorCode.invalid_request

        asyncio.run(story())

    def test_an_envelope_from_a_client_is_refused(self) -> None:
        async def story() -> None:
            node = ControllerNode(None)
            ctx = context(node.broker, 58, 0)
            ctx.listener = "OUTSIDE"
            with pytest.raises(KafkaError) as refused:
                await envelope.handle(ctx, Struct())
            assert refused.value.code is ErrorCode.cluster_authorization_failed

        asyncio.run(story())


def test_every_module_that_forwards_is_accepted_in_an_envelope() -> None:
    """All modules that forward their own API are accepted in an envelope. Two create topics
    instead, for the client whose request they answer.
    """
    creates_topics = ("metadata", "streams_group_heartbeat")
    forwards = {"to_controller", "change_expiry"}  # the second is for two APIs of tokens
    forwarding = {
        name
        for name, module in registry.handler_modules().items()
        if forwards & vars(module).keys() and name not in creates_topics
    }
    assert forwarding == {name for name, access in registry.APIS.items() if access.forwardable}
    assert {"create_topics", "describe_quorum"} <= forwarding
