"""Responses with a chosen error code, without carrying out the request.

Most responses have one error code at their top. These have them inside, one per topic or partition
of the request, and are built from it; or they are reads, whose real response gets the code put in.
"""

from typing import Final, NamedTuple

from odradek_protocol.messages import api
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


class Mirror(NamedTuple):
    """Where the parts of a request are in the response: arrays, and the number of a partition.

    `unknown` has the fields of a partition that are -1 next to an error.
    """

    topics: tuple[str, str]
    partitions: tuple[str, str] | None = None
    number: tuple[str, str] = ("partition_index", "partition_index")
    unknown: tuple[str, ...] = ()


MIRRORS: Final = {
    ApiKey.PRODUCE: Mirror(
        ("topic_data", "responses"),
        ("partition_data", "partition_responses"),
        ("index", "index"),
        ("base_offset", "log_append_time", "log_start_offset"),
    ),
    ApiKey.FETCH: Mirror(
        ("topics", "responses"),
        ("partitions", "partitions"),
        ("partition", "partition_index"),
        ("high_watermark", "last_stable_offset", "log_start_offset"),
    ),
    ApiKey.OFFSET_COMMIT: Mirror(("topics", "topics"), ("partitions", "partitions")),
    ApiKey.TXN_OFFSET_COMMIT: Mirror(("topics", "topics"), ("partitions", "partitions")),
    ApiKey.DELETE_RECORDS: Mirror(
        ("topics", "topics"), ("partitions", "partitions"), unknown=("low_watermark",)
    ),
    ApiKey.CREATE_TOPICS: Mirror(("topics", "topics")),
    ApiKey.CREATE_PARTITIONS: Mirror(("topics", "results")),
}

# They change nothing: they are carried out, and every error code of the response is replaced.
READS: Final = frozenset({
    ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
})  # fmt: skip


def can_fail(api_key: int) -> bool:
    """Whether a request of this API can be answered with an error code of choice."""
    if api_key in MIRRORS or api_key in READS:
        return True
    versions = api.supported_versions(api_key)
    return "error_code" in api.response_fields(api_key, versions[-1])


def mirrored(api_key: int, request: Struct, code: int) -> Struct:
    """The response that has this code for every topic or partition of the request."""
    mirror = MIRRORS[ApiKey(api_key)]
    found: list[Struct] = getattr(request, mirror.topics[0]) or []
    answer = Struct()
    setattr(answer, mirror.topics[1], [_topic(mirror, topic, code) for topic in found])
    return answer


def _topic(mirror: Mirror, topic: Struct, code: int) -> Struct:
    fields = vars(topic)
    names = ("name", "topic", "topic_id")
    answer = Struct(**{name: fields[name] for name in names if name in fields})
    if mirror.partitions is None:
        answer.error_code = code
        return answer
    asked, answered = mirror.number
    numbers = [vars(one)[asked] for one in fields[mirror.partitions[0]]]
    unknown = dict.fromkeys(mirror.unknown, -1)
    parts = [Struct(**{answered: number, "error_code": code, **unknown}) for number in numbers]
    setattr(answer, mirror.partitions[1], parts)
    return answer


def overwrite(answer: Struct, code: int) -> Struct:
    """Puts the code into every error code of a response, at any depth."""
    fields = vars(answer)
    if "error_code" in fields:
        answer.error_code = code
    for value in fields.values():
        if isinstance(value, Struct):
            overwrite(value, code)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    overwrite(item, code)
    return answer
