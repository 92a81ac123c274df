"""Functions that the APIs between nodes of the metadata quorum share."""

import asyncio
from dataclasses import replace

from odradek_broker.handlers.context import RequestContext
from odradek_broker.raft.messages import Request, Response
from odradek_broker.raft.service import Records
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct


def check_cluster(ctx: RequestContext, cluster_id: str | None) -> None:
    """Refuses a request that is meant for another cluster."""
    if cluster_id is not None and cluster_id != ctx.broker.cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{ctx.broker.cluster_id}"',
        )


def check_voter(what: str, request: Struct) -> None:
    """A voter is identified by its node and the directory of its metadata log."""
    if request.voter_id < 0 or request.voter_directory_id is None:
        raise KafkaError(
            ErrorCode.invalid_request, f"{what} voter request didn't include a valid voter"
        )


def check_sender(ctx: RequestContext, cluster_id: str | None) -> None:
    """Refuses clients, and nodes of another cluster that are configured with our addresses."""
    if ctx.listener not in ctx.broker.settings.listeners.to_quorum:
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    check_cluster(ctx, cluster_id)


def ask_quorum(
    ctx: RequestContext, cluster_id: str | None, request: Request
) -> "asyncio.Future[tuple[Response, Records | None]]":
    """Passes a request to the quorum, which may answer later."""
    check_sender(ctx, cluster_id)
    answered = asyncio.get_running_loop().create_future()

    def ticket(response: Response, records: Records | None) -> None:
        if not answered.done():
            known = replace(response, leader=response.leader.at(ctx.listener))
            answered.set_result((known, records))

    ctx.broker.quorum.request(request, ticket)
    return answered
