"""The options of Spark's reader for a source. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek_api.pipeline.rules import timestamp_ms
from odradek_api.pipeline.sources import Files, Source

# A rolling restart moves leaders for seconds; the connector's default retries take 30 ms.
FETCH_OFFSETS = {"fetchOffset.numRetries": "60", "fetchOffset.retryIntervalMs": "1000"}
EARLIEST, LATEST = -2, -1


def kafka_options(
    source: Source, partitions: Mapping[str, int], *, batch: bool, limit: int | None = None
) -> dict[str, str]:
    """`partitions`: of the existing topics; Spark needs offsets for all of them.

    `limit`: of the first batch (pacing.py).
    """
    options = {
        "failOnDataLoss": "true" if source.fail_on_data_loss else "false",
        "includeHeaders": "true",
        **FETCH_OFFSETS,
    }
    if source.topics:
        options["subscribe"] = ",".join(source.topics)
    else:
        assert source.topic_pattern is not None
        options["subscribePattern"] = source.topic_pattern
    options |= _start(source, partitions)
    if batch:
        options["endingOffsets"] = "latest"
        if source.until:
            options["endingOffsets"] = _complete(source.until, partitions, LATEST)
    elif (most := limit or source.max_offsets_per_trigger) is not None:
        options["maxOffsetsPerTrigger"] = str(most)
    return options


def _start(source: Source, partitions: Mapping[str, int]) -> dict[str, str]:
    if source.from_ == "timestamp":
        assert source.timestamp is not None
        return {
            "startingTimestamp": str(timestamp_ms(source.timestamp)),
            # If there is no record since then, start with new ones.
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if source.from_ == "offsets":
        return {"startingOffsets": _complete(source.offsets, partitions, EARLIEST)}
    return {"startingOffsets": source.from_}


def _complete(offsets: Mapping[str, Any], partitions: Mapping[str, int], rest: int) -> str:
    """{"visits": {"0": 5}} of two partitions → {"visits": {"0": 5, "1": -2}}."""
    given = {topic: dict.fromkeys(map(str, range(n)), rest) for topic, n in partitions.items()}
    for topic, own in offsets.items():
        given.setdefault(topic, {}).update({str(p): int(offset) for p, offset in own.items()})
    return json.dumps(given)


def file_options(files: Files) -> dict[str, str]:
    options = {"recursiveFileLookup": "true" if files.recursive else "false"}
    if files.pattern is not None:
        options["pathGlobFilter"] = files.pattern
    if files.max_files_per_trigger is not None:
        options["maxFilesPerTrigger"] = str(files.max_files_per_trigger)
    if files.latest_first:
        options["latestFirst"] = "true"
    return options
