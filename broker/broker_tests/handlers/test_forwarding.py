"""A request of a client through an envelope: what the controller sees, and what comes back."""

import asyncio
from types import SimpleNamespace

import pytest

from odradek_broker.handlers import envelope, registry
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct

VERSION = 7
TOPICS = [Struct(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[])]


class Context(RequestContext):
    def respond(self, chunks, size):
        raise AssertionError

    def disconnect(self, reason):
        raise AssertionError


def broker(**services: object) -> SimpleNamespace:
    listeners = SimpleNamespace(inter_broker_name="PLAINTEXT")
    return SimpleNamespace(
        cluster_id="c",
        settings=SimpleNamespace(listeners=listeners),
        **services,
    )


def context(broker_: SimpleNamespace, api_key: int, version: int) -> Context:
    return Context(broker_, api_key, version, 9, "client", "PLAINTEXT", "10.1.2.3")


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

    async def run(self, here: object, there: tuple[int, int, Struct], timeout_ms: float) -> Struct:
        key, version, message = there
        received = api.decode_request(key, version, api.encode_request(key, version, message))
        answer = await envelope.handle(context(self.broker, key, version), received)
        self.answers.append(answer)
        if ErrorCode(answer.error_code) is ErrorCode.not_controller:
            raise PeerUnavailable("moved")
        return api.decode_response(key, version, api.encode_response(key, version, answer))


async def ask(node: ControllerNode, request: Struct, key: int = 19) -> Struct:
    ctx = context(broker(forwarder=node, controller=None), key, VERSION)
    return await to_controller(ctx, request, None)


def request() -> Struct:
    return Struct(topics=TOPICS, timeout=1000, validate_only=False)


class TestEnvelope:
    def test_the_controller_answers_as_if_the_client_had_asked_it(self):
        async def story():
            seen = []

            async def decide(asked: Struct) -> Struct:
                seen.append(asked)
                return Struct(topics=[Struct(name="a", error_code=ErrorCode.invalid_partitions)])

            answer = await ask(ControllerNode(decide), request())
            assert [topic.name for topic in seen[0].topics] == ["a"]
            assert answer.topics[0].error_code is ErrorCode.invalid_partitions

        asyncio.run(story())

    @pytest.mark.parametrize("active", [True, False])
    def test_a_controller_no_more_is_never_seen_by_the_client(self, active):
        """Also where the handler makes an answer out of every refusal, as CreateTopics does."""

        async def story():
            async def decide(_: Struct) -> Struct:
                raise KafkaError(ErrorCode.not_controller)

            node = ControllerNode(decide, active=active)
            with pytest.raises(KafkaError) as refused:
                await ask(node, request())
            assert refused.value.code is ErrorCode.request_timed_out
            assert node.answers[0].error_code is ErrorCode.not_controller

        asyncio.run(story())

    def test_other_refusals_come_back(self):
        async def story():
            async def decide(_: Struct) -> Struct:
                raise KafkaError(ErrorCode.kafka_storage_error, "no disk")

            answer = await ask(ControllerNode(decide), request())
            topic = answer.topics[0]
            assert (topic.error_code, topic.error_message) == (
                ErrorCode.kafka_storage_error,
                "no disk",
            )

        asyncio.run(story())

    def test_only_what_a_controller_decides(self):
        async def story():
            node = ControllerNode(None)
            metadata = Struct(topics=None, allow_auto_topic_creation=True)
            ctx = context(broker(forwarder=node, controller=None), 3, 12)
            with pytest.raises(KafkaError) as refused:
                await to_controller(ctx, metadata, None)
            assert refused.value.code is ErrorCode.invalid_request

        asyncio.run(story())

    @pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\0\x13\0\x07" + b"\0" * 4])
    def test_garbage_in_an_envelope_is_refused(self, data):
        async def story():
            node = ControllerNode(None)
            message = Struct(
                request_data=data, request_principal=None, client_host_address=b"\x0a\1\2\3"
            )
            answer = await envelope.handle(context(node.broker, 58, 0), message)
            assert answer.error_code is ErrorCode.invalid_request

        asyncio.run(story())

    def test_not_from_clients(self):
        async def story():
            node = ControllerNode(None)
            ctx = context(node.broker, 58, 0)
            ctx.listener = "OUTSIDE"
            with pytest.raises(KafkaError) as refused:
                await envelope.handle(ctx, Struct())
            assert refused.value.code is ErrorCode.cluster_authorization_failed

        asyncio.run(story())


def test_everything_that_is_forwarded_can_be():
    """All modules that forward their own API are accepted in an envelope."""
    forwarding = {
        name
        for name, module in registry.handler_modules().items()
        if hasattr(module, "to_controller") and name != "metadata"
    }
    assert forwarding == {name for name, access in registry.APIS.items() if access.forwardable}
    assert {"create_topics", "describe_quorum"} <= forwarding
