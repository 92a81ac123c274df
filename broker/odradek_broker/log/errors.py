"""How the log layer fails."""

from odradek_broker.model.errors import ErrorCode, KafkaError


class LogDirError(KafkaError):
    """A log directory does not work any more; it and all its logs are offline from now on.

    The client sees KAFKA_STORAGE_ERROR, which makes it look for another leader.
    """

    def __init__(self, path: str, cause: OSError | None = None) -> None:
        reason = f": {cause}" if cause else ""
        super().__init__(ErrorCode.kafka_storage_error, f"log directory {path} is offline{reason}")
        self.path = path
        self.cause = cause


class CorruptLogError(KafkaError):
    """The bytes at a position of a segment are not a record batch."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(
            ErrorCode.corrupt_message, f"{path}: no record batch at position {position}: {why}"
        )
        self.position = position
