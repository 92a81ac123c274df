"""The errors of the log layer, each with its Kafka error code."""

from odradek_protocol.error_codes import ErrorCode, KafkaError

# A LogDirError that is not `offline` is worth another attempt after this long.
RETRY_SECONDS = 0.2


class LogDirError(KafkaError):
    """A log directory has failed; it and all its logs are offline until the broker restarts.

    Unless `offline` is False: then the process lacks descriptors or memory, nothing was written,
    and a retry may succeed. The client gets KAFKA_STORAGE_ERROR either way, which makes it refresh
    its metadata and retry.
    """

    def __init__(self, path: str, cause: OSError | None = None, *, offline: bool = True) -> None:
        reason = f": {cause}" if cause else ""
        state = "is offline" if offline else "cannot be used at the moment"
        super().__init__(ErrorCode.kafka_storage_error, f"log directory {path} {state}{reason}")
        self.path = path
        self.cause = cause
        self.offline = offline


class NoRoomError(KafkaError):
    """The directory is short of space; nothing was appended, and the directory is still online.

    KAFKA_STORAGE_ERROR is retriable for producers: they refresh their metadata and send it again.
    """

    def __init__(self, path: str, free_bytes: int, reserve_bytes: int) -> None:
        super().__init__(
            ErrorCode.kafka_storage_error,
            f"log directory {path} has {free_bytes / 1e6:.1f} MB free and keeps a reserve of "
            f"{reserve_bytes / 1e6:.1f} MB (odradek.log.dir.reserve.bytes): free some space or "
            "enlarge the volume",
        )
        self.path = path


class CorruptLogError(KafkaError):
    """The bytes at a position of a segment are not a record batch."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(
            ErrorCode.corrupt_message, f"{path}: no record batch at position {position}: {why}"
        )
        self.position = position
