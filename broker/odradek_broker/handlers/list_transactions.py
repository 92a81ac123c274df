"""ListTransactions (66), v0–2: the transactional ids that this broker coordinates.

Filters: states (unknown ones are told back), producer ids, since v1 the least duration of an open
transaction in ms, since v2 a pattern (regular expression) for the whole transactional id. Python's
matcher can take for ever over some patterns, and all of the broker with it: those (repeated groups,
references, more than REPEATS_MAX repetitions) are refused with INVALID_REGULAR_EXPRESSION.
COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded: the list would not be whole.
"""

import re

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode
from odradek_broker.txn.metadata import TransactionMetadata
from odradek_broker.txn.states import TransactionState
from odradek_broker.wire.struct import Struct

API_KEY = 66
VERSIONS = range(0, 3)

# Each one multiplies the time that a match may take by the length of the id.
REPEATS_MAX = 3
PATTERN_CHARS_MAX = 1000
COSTLY = re.compile(r"\)[*+?{]|\(\?|\\[1-9]")  # a repeated group, an extension, a reference

STATES = {state.kafka_name: state for state in TransactionState}


def handle(ctx: RequestContext, request: Struct) -> Struct:
    unknown = [name for name in request.state_filters if name not in STATES]
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producer_ids = set(request.producer_id_filters)
    try:
        pattern = _compiled(getattr(request, "transactional_id_pattern", None) or ".*")
    except re.error:
        return _answer(ErrorCode.invalid_regular_expression, unknown, [])
    now_ms = ctx.broker.clock.now_ms()
    least_ms = getattr(request, "duration_filter", -1)

    def wanted(one: TransactionMetadata) -> bool:
        # A filter of nothing but unknown states lets nothing pass.
        if request.state_filters and one.state not in states:
            return False
        if producer_ids and one.producer_id not in producer_ids:
            return False
        if least_ms >= 0 and now_ms - one.start_timestamp_ms <= least_ms:
            return False
        return pattern.fullmatch(one.transactional_id) is not None

    found = []
    for _, shard in ctx.broker.transactions.shards.shards():
        if shard is None:
            return _answer(ErrorCode.coordinator_load_in_progress, unknown, [])
        found += [one for one in shard.transactions.values() if wanted(one)]
    return _answer(ErrorCode.none, unknown, found)


def _compiled(pattern: str) -> re.Pattern[str]:
    """re.error if it is no pattern, or one that might take too long."""
    repeats = sum(pattern.count(sign) for sign in "*+{")
    if COSTLY.search(pattern) or repeats > REPEATS_MAX or len(pattern) > PATTERN_CHARS_MAX:
        raise re.error("a pattern that might take too long")
    return re.compile(pattern, re.DOTALL)


def _answer(code: ErrorCode, unknown: list[str], found: list[TransactionMetadata]) -> Struct:
    return Struct(
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=[
            Struct(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.kafka_name,
            )
            for one in found
        ],
    )
