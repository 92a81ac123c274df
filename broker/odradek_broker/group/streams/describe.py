"""StreamsGroupDescribe: a group, its topology and its members, as Kafka shows them."""

from odradek_broker.group.describing import NOT_ASKED_FOR
from odradek_broker.group.streams.group import StreamsGroup
from odradek_broker.group.streams.member import StreamsMember
from odradek_broker.group.streams.tasks import Tasks, structs_of
from odradek_broker.group.streams.topics import ConfiguredSubtopology
from odradek_broker.group.streams.topology import Subtopology, TopicInfo
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct


def describe(group: StreamsGroup, image: MetadataImage) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group, image),
        members=[_member(group, one) for one in group.members.values()],
        authorized_operations=NOT_ASKED_FOR,
    )


def unknown(
    group_id: str, message: str | None, code: ErrorCode = ErrorCode.group_id_not_found
) -> Struct:
    return Struct(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        topology=None,
        members=[],
        authorized_operations=NOT_ASKED_FOR,
    )


def _topology(group: StreamsGroup, image: MetadataImage) -> Struct | None:
    """With the numbers of partitions, once the topics exist."""
    topology = group.topology
    if topology is None:
        return None
    try:
        configured = group.configured(topology, image)
    except KafkaError:  # a topology that another program wrote
        return None
    known = configured.subtopologies if configured.is_ready else None
    return Struct(
        epoch=topology.epoch,
        subtopologies=[
            _subtopology(one, known[one.id] if known else None)
            for _, one in sorted(topology.subtopologies.items())
        ],
    )


def _subtopology(one: Subtopology, configured: ConfiguredSubtopology | None) -> Struct:
    def infos(topics: tuple[TopicInfo, ...]) -> list[Struct]:
        return [
            topic.struct(configured.partitions[topic.name] if configured else None)
            for topic in sorted(topics)
        ]

    return Struct(
        subtopology_id=one.id,
        source_topics=sorted(one.source_topics),
        repartition_sink_topics=sorted(one.repartition_sinks),
        state_changelog_topics=infos(one.changelogs),
        repartition_source_topics=infos(one.repartition_sources),
    )


def _member(group: StreamsGroup, member: StreamsMember) -> Struct:
    endpoint = member.user_endpoint
    return Struct(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=Struct(host=endpoint.host, port=endpoint.port) if endpoint else None,
        client_tags=[
            Struct(key=key, value=text) for key, text in sorted(member.client_tags.items())
        ],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.owned.plain),
        target_assignment=_assignment(group.target_of(member.member_id)),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> Struct:
    return Struct(
        active_tasks=structs_of(tasks.active),
        standby_tasks=structs_of(tasks.standby),
        warmup_tasks=structs_of(tasks.warmup),
    )
