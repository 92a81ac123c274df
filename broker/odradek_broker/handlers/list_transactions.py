"""ListTransactions (66), v0–2: the transactional ids that this broker coordinates.

Filters: states (a response without an error names unknown ones), producer ids, from v1 on the
minimum duration of an open transaction in ms, from v2 on a pattern for the whole transactional id
(RE2, as in Kafka: its time is linear, so that no pattern blocks the broker).
COORDINATOR_LOAD_IN_PROGRESS while a partition is loaded, because the list would be incomplete.
"""

import re2

from odradek_broker.handlers.context import RequestContext
from odradek_broker.txn.metadata import TransactionMetadata
from odradek_broker.txn.states import TransactionState
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 66
VERSIONS = range(0, 3)

# As for subscriptions (group/consumer/regex.py).
COMPILED_BYTES_MAX = 1 << 20

STATES = {state.kafka_name: state for state in TransactionState}


def handle(ctx: RequestContext, request: Struct) -> Struct:
    unknown = [name for name in request.state_filters if name not in STATES]
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producer_ids = set(request.producer_id_filters)
    try:
        pattern = _compiled(request.transactional_id_pattern or ".*")
    except re2.error:
        return _answer(ErrorCode.invalid_regular_expression, [], [])
    now_ms = ctx.broker.clock.now_ms()
    least_ms = request.duration_filter

    def wanted(one: TransactionMetadata) -> bool:
        # If all states of the filter are unknown, no transaction matches.
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
            return _answer(ErrorCode.coordinator_load_in_progress, [], [])
        found += [one for one in shard.transactions.values() if wanted(one)]
    return _answer(ErrorCode.none, unknown, found)


def _compiled(pattern: str) -> "re2._Regexp":
    options = re2.Options()
    options.max_mem = COMPILED_BYTES_MAX
    options.log_errors = False
    options.dot_nl = True
    return re2.compile(pattern, options)


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
