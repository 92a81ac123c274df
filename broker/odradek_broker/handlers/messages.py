"""Error responses that several APIs share."""

from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

# Apache Kafka's text for an invalid request.
MALFORMED_REQUEST = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)


def refused(error: KafkaError, **what: object) -> Struct:
    """The result for one item (a topic, a resource) of a request that failed as a whole."""
    return Struct(error_code=error.code, error_message=error.message, **what)
