"""How the log layer fails."""

from odradek_protocol.error_codes import ErrorCode, KafkaError


class LogDirError(KafkaError):
    """A log directory does not work any more; it and all its logs are offline from now on.

    Unless `offline` is False: then the process lacks descriptors or memory, nothing was written,
    and the same may work in a moment. The client sees KAFKA_STORAGE_ERROR either way, which makes
    it look for another leader and try again.
    """

    def __init__(self, path: str, cause: OSError | None = None, *, offline: bool = True) -> None:
        reason = f": {cause}" if cause else ""
        state = "is offline" if offline else "cannot be used at the moment"
        super().__init__(ErrorCode.kafka_storage_error, f"log directory {path} {state}{reason}")
        self.path = path
        self.cause = cause
        self.offline = offline


class NoRoomError(KafkaError):
    """The directory has little free space; nothing was appended, and nothing is broken.

    KAFKA_STORAGE_ERROR is retriable for producers: they ask who leads and send it again.
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
