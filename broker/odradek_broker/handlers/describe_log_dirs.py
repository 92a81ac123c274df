"""DescribeLogDirs (35), v1–5: the log directories, their file systems, and their replicas.

A replica that moves between directories (AlterReplicaLogDirs) is listed twice: the current replica,
and the future one with its lag. Left out: cordoned directories; there are none.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.log.future_logs import lag_of
from odradek_broker.log.log import Log
from odradek_broker.log.log_dirs import DirDescription
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 35
VERSIONS = range(1, 6)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return Struct(
        error_code=ErrorCode.none,
        results=[
            _directory(ctx, directory, asked) for directory in ctx.broker.logs.describe_dirs()
        ],
    )


def _directory(
    ctx: RequestContext, directory: DirDescription, asked: set[tuple[str, int]] | None
) -> Struct:
    if directory.failure is not None:
        return Struct(error_code=ErrorCode.kafka_storage_error, log_dir=directory.path, topics=[])
    topics: dict[str, list[Struct]] = {}
    for log in directory.logs:
        if asked is None or log.topic_partition in asked:
            topics.setdefault(log.topic_partition.topic, []).append(_partition(ctx, log))
    return Struct(
        error_code=ErrorCode.none,
        log_dir=directory.path,
        topics=[Struct(name=name, partitions=found) for name, found in topics.items()],
        total_bytes=directory.usage.total_bytes,
        usable_bytes=directory.usage.usable_bytes,
        is_cordoned=False,
    )


def _partition(ctx: RequestContext, log: Log) -> Struct:
    lag = max(0, log.high_watermark - log.log_end_offset)
    if log.is_future:
        lag = lag_of(log, ctx.broker.logs.logs)
    return Struct(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=lag,
        is_future_key=log.is_future,
    )
