"""Error texts of Apache Kafka that more than one API answers with."""

MALFORMED_REQUEST = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
