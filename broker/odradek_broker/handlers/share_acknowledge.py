"""ShareAcknowledge (79), v1–2: acknowledge records that a share session has acquired (KIP-932).

Accept, release, reject, and (v2, is_renew_ack) renew the lock. A response without an error means
that the acknowledgement is durable. Epoch -1 closes the session, which frees the other locks of the
member; a session is opened with ShareFetch only.
"""

from odradek_broker.handlers import share_support as support
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct
from odradek_protocol.share_codes import FINAL_EPOCH, INITIAL_EPOCH

API_KEY = 79
VERSIONS = range(1, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    shares = ctx.broker.shares
    try:
        support.check_enabled(ctx)
        if request.group_id is None or request.member_id is None:
            raise KafkaError(ErrorCode.invalid_request)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.invalid_share_session_epoch)
        session = shares.sessions.find(
            request.group_id, request.member_id, request.share_session_epoch
        )
    except KafkaError as error:
        return support.refusal(error)
    results = await support.acknowledge(ctx, request, session)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.close_session(session)
    answers = {
        key: Struct(
            error_code=error.code,
            error_message=error.message or None,
            current_leader=support.leader_of(ctx, key, error.code),
        )
        for key, error in results.items()
    }
    moved = [key for key, one in answers.items() if one.current_leader.leader_epoch]
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=shares.config(request.group_id).limits.lock_ms,
        responses=support.by_topic(answers),
        node_endpoints=support.node_endpoints(ctx, moved),
    )
