"""Handlers on a controller in memory: `ask(metadata, …)` returns the decoded response."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

from broker_tests.controller.support import MemoryLog, started
from broker_tests.manual_clock import ManualClock
from odradek_broker.controller.service import ControllerService
from odradek_broker.handlers.metadata_cache import MetadataCache
from odradek_broker.model.principal import ANONYMOUS
from odradek_broker.security.quotas import ClientQuotas
from odradek_protocol.messages.api import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek_protocol.messages.struct import Struct


class AdminClient:
    """Asks handlers directly; requests and answers pass through the codec of the version."""

    def __init__(self, controller: ControllerService, listener: str = "PLAINTEXT") -> None:
        self.controller = controller
        self.listener = listener
        self.logs: Any = None
        self.metadata_cache = MetadataCache()
        self.leads_isolated = False
        self.disconnected: list[str] = []
        self.quotas = ClientQuotas()
        self.principal = ANONYMOUS

    async def ask(self, module: ModuleType, version: int, **fields: object) -> Any:
        key = module.API_KEY
        assert version in module.VERSIONS
        request = decode_request(key, version, encode_request(key, version, Struct(**fields)))
        ctx = SimpleNamespace(
            api_version=version,
            listener=self.listener,
            principal=self.principal,
            client_id="admin",
            is_forwarded=True,  # decided here
            disconnect=self.disconnected.append,
            broker=SimpleNamespace(
                node_id=1,
                cluster_id="cluster",
                controller=self.controller,
                metadata=self.controller._metadata,
                quorum=SimpleNamespace(leader=SimpleNamespace(leader_id=1)),
                settings=self.controller._settings,
                clock=ManualClock(),
                rng=Random(1),
                logs=self.logs,
                partitions=SimpleNamespace(
                    isolation=SimpleNamespace(leads_isolated=self.leads_isolated),
                    is_opening=lambda _topic: False,
                ),
                metadata_cache=self.metadata_cache,
                authorizer=None,
                quotas=self.quotas,
            ),
        )
        answer = module.handle(ctx, request)
        if inspect.isawaitable(answer):
            answer = await answer
        return decode_response(key, version, encode_response(key, version, answer))


def with_client(
    story: Callable[[AdminClient], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    """Runs `story(client)` on a controller with one live broker."""

    async def run() -> None:
        await story(AdminClient(await started(settings, MemoryLog())))

    asyncio.run(run())
