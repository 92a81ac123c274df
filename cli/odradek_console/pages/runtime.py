"""What pages of the runtime share: its state, and which buttons this user gets."""

from __future__ import annotations

from aiohttp import web

from odradek_console.cluster.runtime_state import (
    RuntimeSource,
    RuntimeState,
    UnreadableStateError,
)
from odradek_console.cluster.view import ClusterView
from odradek_console.web.rendering import OPTIONS, SESSION
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.client.errors import ClientError


def source_of(request: web.Request) -> RuntimeSource:
    source = request.app[OPTIONS].runtime
    if source is None:
        raise web.HTTPNotFound
    return source


async def state_of(request: web.Request) -> tuple[RuntimeState | None, str]:
    """The state, or why it cannot be read.

    It is read with the console's rights. So a user who has logged in has to be allowed to DESCRIBE
    the cluster in Kafka: the state names topics and settings.
    """
    session = request[SESSION]
    if request.app[OPTIONS].login is not None:
        await session.run(session.view.require_describe_cluster)
    try:
        return await session.run(source_of(request).read), ""
    except UnreadableStateError as error:
        return None, str(error)


async def steerable(request: web.Request) -> frozenset[str]:
    """The kinds whose buttons this user can use."""
    options, session = request.app[OPTIONS], request[SESSION]
    if options.read_only or options.runtime is None:
        return frozenset()
    if options.login is not None and not await session.run(_may_alter, session.view):
        return frozenset()
    return await session.run(options.runtime.may_steer)


def _may_alter(view: ClusterView) -> bool:
    try:
        return AclOperation.ALTER in view.allowed_on_cluster()
    except ClientError:
        return False
