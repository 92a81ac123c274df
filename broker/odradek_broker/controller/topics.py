"""Decisions about topics: create, delete, add partitions. Checks and messages are Apache Kafka's.

Each function takes the image and the decoded request (fields by kio's names) and returns the
records and the response; an invalid topic does not affect the others of a request.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from uuid import UUID

from odradek_broker.controller.configs import (
    default_topic_configs,
    effective_topic_configs,
    validate_topic_configs,
)
from odradek_broker.controller.new_partitions import (
    Replicas,
    check_manual,
    partition_records,
    place_replicas,
)
from odradek_broker.controller.result import ControllerResult
from odradek_broker.controller.topic_names import NOT_HOSTED, collision_key, validate_topic_name
from odradek_broker.metadata.image import MetadataImage, TopicImage
from odradek_broker.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import METADATA_TOPIC, TopicId
from odradek_protocol.messages.struct import Struct

# One request becomes one batch of the metadata log, whose size is limited (8 MB; a partition
# with three replicas takes 125 bytes). Apache Kafka refuses more than 10,000.
PARTITIONS_PER_REQUEST_MAX = 20_000

# Called with the number of partitions that a topic gains or loses, before it is changed; raises
# KafkaError if the client has exceeded its quota (controller_mutation_rate).
Charge = Callable[[int], None]


def free(partitions: int) -> None:
    """A charge function for requests without a quota."""


# -- CreateTopics -----------------------------------------------------------------------------


def create_topics(
    image: MetadataImage,
    request: Struct,
    settings: Settings,
    rng: Random,
    charge: Charge = free,
) -> ControllerResult[Struct]:
    times = Counter(topic.name for topic in request.topics)
    topics = [t for t in request.topics if times[t.name] == 1 and t.name != METADATA_TOPIC]
    too_many = partitions_asked_for(topics, settings) > PARTITIONS_PER_REQUEST_MAX
    existing = {collision_key(name): name for name in image.topics}
    defaults = default_topic_configs(settings)
    records: list[MetadataRecord] = []
    answers = []
    for topic in topics:
        try:
            if too_many:
                raise _too_many_partitions()
            _check_new_name(topic.name, image, existing)
            created = _create_topic(image, topic, settings, rng)
            charge(sum(isinstance(record, PartitionRecord) for record in created))
        except KafkaError as error:
            answers.append(_refused(topic.name, error))
        else:
            records += created
            answers.append(_created(created, defaults))
    for name in [name for name, count in times.items() if count > 1]:
        duplicate = KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
        answers.append(_refused(name, duplicate))
    if times[METADATA_TOPIC] == 1:
        reason = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        answers.append(_refused(METADATA_TOPIC, KafkaError(ErrorCode.invalid_request, reason)))
    return ControllerResult([] if request.validate_only else records, Struct(topics=answers))


def partitions_asked_for(topics: Sequence[Struct], settings: Settings) -> int:
    default = settings.int("num.partitions")
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else topic.num_partitions)
        for topic in topics
    )


def _too_many_partitions() -> KafkaError:
    return KafkaError(
        ErrorCode.policy_violation, "Excessively large number of partitions per request."
    )


def _refused(name: str, error: KafkaError) -> Struct:
    return Struct(name=name, error_code=error.code, error_message=error.message, configs=[])


def _check_new_name(name: str, image: MetadataImage, existing: Mapping[str, str]) -> None:
    validate_topic_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    colliding = existing.get(collision_key(name))
    if colliding is not None and ("." in name or "_" in name):
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"Topic '{name}' collides with existing topic: {colliding}",
        )


def _create_topic(
    image: MetadataImage, topic: Struct, settings: Settings, rng: Random
) -> list[MetadataRecord]:
    """The topic's record, then its configs', then its partitions'."""
    configs = _creation_configs(topic, settings)
    if topic.assignments:
        assignments = _manual_assignments(image, topic)
    else:
        assignments = _automatic_assignments(image, topic, settings, rng)
    topic_id = new_topic_id(rng)
    return [
        TopicRecord(topic.name, topic_id),
        *(
            ConfigRecord(ResourceType.TOPIC, topic.name, name, value)
            for name, value in configs.items()
        ),
        *partition_records(image, topic_id, assignments, first_partition=0),
    ]


def _created(records: Sequence[MetadataRecord], defaults: Mapping[str, Struct]) -> Struct:
    topic, last = records[0], records[-1]
    assert isinstance(topic, TopicRecord)
    assert isinstance(last, PartitionRecord)
    overrides = {r.name: r.value or "" for r in records if isinstance(r, ConfigRecord)}
    return Struct(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=last.partition_id + 1,
        replication_factor=len(last.replicas),
        configs=effective_topic_configs(defaults, overrides),
    )


def _creation_configs(topic: Struct, settings: Settings) -> dict[str, str]:
    unset = [config.name for config in topic.configs if config.value is None]
    if unset:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Null value not supported for topic configs: {','.join(unset)}",
        )
    configs = {config.name: config.value for config in topic.configs}
    if not configs:
        return configs
    try:
        validate_topic_configs(settings, configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None
    return configs


def _manual_assignments(image: MetadataImage, topic: Struct) -> list[Replicas]:
    fixed = {"replication factor": topic.replication_factor, "numPartitions": topic.num_partitions}
    for name, value in fixed.items():
        if value != -1:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    by_partition: dict[int, Replicas] = {}
    replication_factor = None
    for assignment in topic.assignments:
        if assignment.partition_index in by_partition:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                "Found multiple manual partition assignments for partition "
                f"{assignment.partition_index}",
            )
        replicas = tuple(assignment.broker_ids)
        check_manual(image, replicas, replication_factor, assignment.partition_index)
        replication_factor = len(replicas)
        by_partition[assignment.partition_index] = replicas
    if sorted(by_partition) != list(range(len(by_partition))):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_partition[partition] for partition in range(len(by_partition))]


def _automatic_assignments(
    image: MetadataImage, topic: Struct, settings: Settings, rng: Random
) -> list[Replicas]:
    replication_factor, partitions = topic.replication_factor, topic.num_partitions
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replication_factor == -1:
        replication_factor = settings.int("default.replication.factor")
    if partitions == -1:
        partitions = settings.int("num.partitions")
    return place_replicas(image, partitions, replication_factor, rng)


def new_topic_id(rng: Random) -> TopicId:
    """A random id whose base64 form does not begin with "-" (tools would take it for a flag)."""
    while True:
        topic_id = UUID(int=rng.getrandbits(128), version=4)
        if topic_id.bytes[0] >> 2 != 62:
            return topic_id


# -- DeleteTopics -----------------------------------------------------------------------------


def delete_topics(
    image: MetadataImage, request: Struct, charge: Charge = free, *, enabled: bool
) -> ControllerResult[Struct]:
    """`request.topics` by name or id (v6); older versions have `topic_names`."""
    asked = [*request.topics, *(Struct(name=n, topic_id=None) for n in request.topic_names)]
    if not enabled:
        code = ErrorCode.topic_deletion_disabled
        return ControllerResult(
            [], Struct(responses=[_delete_answer(t.name, t.topic_id, code) for t in asked])
        )
    answers = []
    names: Counter[str] = Counter()
    ids: Counter[TopicId] = Counter()
    for topic in asked:
        if topic.name is not None and topic.topic_id is not None:
            reason = "You may not specify both topic name and topic id."
            answers.append(_delete_answer(topic.name, topic.topic_id, _INVALID, reason))
        elif topic.name is not None:
            names[topic.name] += 1
        elif topic.topic_id is not None:
            ids[topic.topic_id] += 1
        else:
            reason = "Neither topic name nor id were specified."
            answers.append(_delete_answer(None, None, _INVALID, reason))
    doomed: dict[TopicId, TopicImage] = {}
    for topic_id, times in ids.items():
        topic = image.topics_by_id.get(topic_id)
        if times > 1:
            answers.append(_delete_answer(None, topic_id, _INVALID, "Duplicate topic id."))
        elif topic is None:
            reason = "This server does not host this topic ID."
            answers.append(_delete_answer(None, topic_id, ErrorCode.unknown_topic_id, reason))
        else:
            doomed[topic_id] = topic
    for name, times in names.items():
        answers += _doom_by_name(image, name, times, ids, doomed)
    records: list[MetadataRecord] = []
    for topic in doomed.values():
        code, message = ErrorCode.none, None
        try:
            charge(len(topic.partitions))
            records.append(RemoveTopicRecord(topic.id))
        except KafkaError as error:
            code, message = error.code, error.message
        answers.append(_delete_answer(topic.name, topic.id, code, message))
    return ControllerResult(records, Struct(responses=answers))


_INVALID = ErrorCode.invalid_request


def _doom_by_name(
    image: MetadataImage,
    name: str,
    times: int,
    ids: Counter[TopicId],
    doomed: dict[TopicId, TopicImage],
) -> list[Struct]:
    """Adds a topic to `doomed`, or an error to the response."""
    topic = image.topics.get(name)
    if times > 1:
        return [_delete_answer(name, None, _INVALID, "Duplicate topic name.")]
    if topic is None:
        code = ErrorCode.unknown_topic_or_partition
        return [_delete_answer(name, None, code, NOT_HOSTED)]
    if topic.id in ids:
        doomed.pop(topic.id, None)
        reason = "The provided topic name maps to an ID that was already supplied."
        return [_delete_answer(name, topic.id, _INVALID, reason)]
    doomed[topic.id] = topic
    return []


def _delete_answer(
    name: str | None, topic_id: TopicId | None, code: ErrorCode, message: str | None = None
) -> Struct:
    return Struct(name=name, topic_id=topic_id, error_code=code, error_message=message)


# -- CreatePartitions -------------------------------------------------------------------------


def create_partitions(
    image: MetadataImage, request: Struct, rng: Random, charge: Charge = free
) -> ControllerResult[Struct]:
    times = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    answers = []
    for topic in request.topics:
        if times[topic.name] > 1:
            continue
        code, message = ErrorCode.none, None
        try:
            more = _create_partitions(image, topic, rng)
            if len(records) + len(more) > PARTITIONS_PER_REQUEST_MAX:
                raise _too_many_partitions()
            charge(len(more))
            records += more
        except KafkaError as error:
            code, message = error.code, error.message
        answers.append(Struct(name=topic.name, error_code=code, error_message=message))
    answers += [
        Struct(name=name, error_code=_INVALID, error_message="Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    return ControllerResult([] if request.validate_only else records, Struct(results=answers))


def _create_partitions(image: MetadataImage, asked: Struct, rng: Random) -> list[PartitionRecord]:
    topic = image.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    count = len(topic.partitions)
    if asked.count == count:
        reason = f"Topic already has {count} partition(s)."
        raise KafkaError(ErrorCode.invalid_partitions, reason)
    if asked.count < count:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {asked.name} currently has {count} partition(s); {asked.count} would "
            "not be an increase.",
        )
    additional = asked.count - count
    if additional > PARTITIONS_PER_REQUEST_MAX:
        raise _too_many_partitions()
    replication_factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        existing = [partition.replicas for partition in topic.partitions.values()]
        found = place_replicas(image, additional, replication_factor, rng, existing)
        return partition_records(image, topic.id, found, first_partition=count)
    if len(asked.assignments) != additional:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified.",
        )
    assignments = [tuple(assignment.broker_ids) for assignment in asked.assignments]
    for partition, replicas in enumerate(assignments, count):
        check_manual(image, replicas, replication_factor, partition)
    return partition_records(image, topic.id, assignments, first_partition=count)
