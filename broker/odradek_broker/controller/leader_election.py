"""ElectLeaders: elections that an operator requests, preferred or unclean.

preferred   elects the first replica of the assignment
unclean     elects a leader for a partition without one, even if it lacks committed records

Per partition, with Apache Kafka's codes: ELECTION_NOT_NEEDED if nothing would change,
PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE if it is impossible.
"""

from odradek_broker.controller.partition_changes import (
    PartitionChanges,
    Strategy,
    active_brokers,
)
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from odradek_protocol.admin_codes import ElectionType
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

_NOT_NEEDED_MESSAGE = "Leader election not needed for topic partition."
_NOT_AVAILABLE = {
    ElectionType.PREFERRED: KafkaError(
        ErrorCode.preferred_leader_not_available, "The preferred leader was not available."
    ),
    ElectionType.UNCLEAN: KafkaError(
        ErrorCode.eligible_leaders_not_available,
        "Eligible topic partition leaders are not available.",
    ),
}


def elect_leaders(image: MetadataImage, request: Struct) -> ControllerResult[Struct]:
    """No partitions named means all; partitions that need no election are then left out."""
    try:
        election = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.invalid_request, f"Unknown election type {request.election_type}"
        ) from None
    changes = PartitionChanges(image, active_brokers(image))
    everything = request.topic_partitions is None
    if everything:
        asked = [(name, sorted(topic.partitions)) for name, topic in image.topics.items()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: dict[tuple[str, int], PartitionChangeRecord] = {}
    results = []
    for name, indexes in asked:
        answers = []
        for index in indexes:
            code, message = ErrorCode.none, None
            try:
                if (name, index) not in records:
                    records[name, index] = _elect(image, changes, name, index, election)
            except KafkaError as error:
                code, message = error.code, error.message
            if not (everything and code is ErrorCode.election_not_needed):
                answer = Struct(partition_id=index, error_code=code, error_message=message)
                answers.append(answer)
        results.append(Struct(topic=name, partition_result=answers))
    response = Struct(error_code=ErrorCode.none, replica_election_results=results)
    return ControllerResult(list(records.values()), response)


def _elect(
    image: MetadataImage, changes: PartitionChanges, name: str, index: int, election: ElectionType
) -> PartitionChangeRecord:
    unknown = ErrorCode.unknown_topic_or_partition
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(unknown, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(unknown, f"No such partition as {name}-{index}")
    preferred = election is ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.election_not_needed, _NOT_NEEDED_MESSAGE)
    strategy = Strategy.PREFERRED if preferred else Strategy.OFFLINE
    record = changes.of(topic, index, strategy=strategy, unclean=not preferred)
    if record is None or record.leader == NO_LEADER_CHANGE:
        raise _NOT_AVAILABLE[election]
    return record
