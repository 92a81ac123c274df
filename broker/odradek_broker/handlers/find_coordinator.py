"""FindCoordinator (10), v0–6: which broker coordinates a group or a transactional id.

There are no coordinators yet, so every key gets COORDINATOR_NOT_AVAILABLE (retriable: a client
that only assigns partitions itself goes on without one). Share groups and unknown key types
are refused as Apache Kafka refuses them.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.messages import MALFORMED_REQUEST
from odradek_broker.model.errors import ErrorCode
from odradek_broker.wire.struct import Struct

API_KEY = 10
VERSIONS = range(0, 7)

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_SINCE = 4


def handle(ctx: RequestContext, request: Struct) -> Struct:
    code = ErrorCode.coordinator_not_available
    message = "The coordinator is not available."
    if request.key_type not in (GROUP, TRANSACTION):
        code = ErrorCode.invalid_request
        message = "" if request.key_type == SHARE else MALFORMED_REQUEST
    nowhere = {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}
    if ctx.api_version < BATCHED_SINCE:
        return Struct(**nowhere)
    return Struct(coordinators=[Struct(key=key, **nowhere) for key in request.coordinator_keys])
