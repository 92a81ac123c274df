"""ShareFetch (78), v1–2: acquire records of a share group, and acknowledge others (KIP-932).

The request belongs to a share session (`share/sessions.py`): epoch 0 opens it, -1 closes it and
frees the member's locks. Acknowledgements are taken first. Then records are read from the session's
partitions; if none is free, the request waits up to max_wait_ms for new records or for locks that
are released. v2 has the strict record limit and renewal of locks (is_renew_ack): such a request
fetches nothing.
"""

from odradek_broker.handlers import share_support as support
from odradek_broker.handlers.context import RequestContext
from odradek_broker.share.service import Fetched, Wait
from odradek_broker.share.sessions import ShareSession
from odradek_broker.share.share_partition import Wanted
from odradek_broker.share.state import Key
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct
from odradek_protocol.share_codes import FINAL_EPOCH, INITIAL_EPOCH, RECORD_LIMIT

API_KEY = 78
VERSIONS = range(1, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        support.check_enabled(ctx)
        _check(request)
        session = _session(ctx, request)
    except KafkaError as error:
        return support.refusal(error)
    acknowledged = await support.acknowledge(ctx, request, session)
    found: list[Fetched] = []
    errors: support.Errors = {}
    if request.share_session_epoch == FINAL_EPOCH:
        ctx.broker.shares.close_session(session)
    elif not getattr(request, "is_renew_ack", False) and request.max_records > 0:
        found, errors = await _fetch(ctx, request, session, waits=not acknowledged)
    return _response(ctx, request, found, errors, acknowledged)


def _check(request: Struct) -> None:
    if request.group_id is None or request.member_id is None:
        raise KafkaError(ErrorCode.invalid_request)
    fetches = request.max_wait or request.min_bytes or request.max_bytes or request.max_records
    if getattr(request, "is_renew_ack", False) and fetches:
        raise KafkaError(ErrorCode.invalid_request)


def _session(ctx: RequestContext, request: Struct) -> ShareSession:
    shares, epoch = ctx.broker.shares, request.share_session_epoch
    added = support.keys_of(request.group_id, request.topics)
    if epoch == INITIAL_EPOCH:
        if any(one.acknowledgement_batches for t in request.topics for one in t.partitions):
            raise KafkaError(ErrorCode.invalid_request)
        session = shares.open_session(request.group_id, request.member_id)
        ctx.when_closed(session, shares.close_session)
    else:
        session = shares.sessions.find(request.group_id, request.member_id, epoch)
    forgotten = [
        Key(request.group_id, topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    if epoch != FINAL_EPOCH:
        shares.sessions.change(session, added, forgotten)
    return session


async def _fetch(
    ctx: RequestContext, request: Struct, session: ShareSession, *, waits: bool
) -> tuple[list[Fetched], support.Errors]:
    keys, errors = support.readable(ctx, session.in_turn())
    if not keys:
        return [], errors
    wanted = Wanted(
        records_max=request.max_records,
        batch_size=max(request.batch_size, 1),
        strict=getattr(request, "share_acquire_mode", 0) == RECORD_LIMIT,
    )
    bytes_max = min(request.max_bytes, ctx.broker.settings.int("fetch.max.bytes"))
    # The client waits for the results of its acknowledgements, and for errors.
    max_wait_ms = request.max_wait if waits and not errors else 0
    wait = Wait(max_wait_ms, lambda: ctx.broker.shares.sessions.is_open(session))
    found, failed = await ctx.broker.shares.fetch(session.member_id, keys, wanted, bytes_max, wait)
    return found, {**errors, **failed}


def _response(
    ctx: RequestContext,
    request: Struct,
    found: list[Fetched],
    errors: support.Errors,
    acknowledged: support.Errors,
) -> Struct:
    answers: dict[Key, Struct] = {}

    def answer(key: Key) -> Struct:
        if key not in answers:
            answers[key] = Struct(
                error_code=ErrorCode.none,
                error_message=None,
                acknowledge_error_code=ErrorCode.none,
                acknowledge_error_message=None,
                current_leader=support.NO_LEADER_HINT,
                records=b"",
                acquired_records=[],
            )
        return answers[key]

    if request.share_session_epoch == INITIAL_EPOCH:
        for key in support.keys_of(request.group_id, request.topics):
            answer(key)
    for key, error in acknowledged.items():
        one = answer(key)
        one.acknowledge_error_code = error.code
        one.acknowledge_error_message = error.message or None
        one.current_leader = support.leader_of(ctx, key, error.code)
    for key, error in errors.items():
        one = answer(key)
        one.error_code, one.error_message = error.code, error.message or None
        one.current_leader = support.leader_of(ctx, key, error.code)
    for key, records, acquired in found:
        one = answer(key)
        one.records = records
        one.acquired_records = [
            Struct(first_offset=a.first, last_offset=a.last, delivery_count=a.delivery_count)
            for a in acquired
        ]
    moved = [key for key, one in answers.items() if one.current_leader.leader_epoch]
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=ctx.broker.shares.config(request.group_id).limits.lock_ms,
        responses=support.by_topic(answers),
        node_endpoints=support.node_endpoints(ctx, moved),
    )
