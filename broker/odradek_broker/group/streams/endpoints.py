"""Which partitions are at which instance, for interactive queries. Does no I/O.

An instance that answers queries names its endpoint (`application.server`). All members get the map
of endpoints to partitions whenever it has changed.
"""

from odradek_broker.group.streams.group import StreamsGroup
from odradek_broker.group.streams.member import StreamsMember
from odradek_broker.group.streams.tasks import Epochs, Partitions
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.messages.struct import Struct


def partitions_by_endpoint(
    group: StreamsGroup, updated: StreamsMember, image: MetadataImage
) -> list[Struct]:
    members = {**group.members, updated.member_id: updated}
    return [
        Struct(
            user_endpoint=Struct(host=member.user_endpoint.host, port=member.user_endpoint.port),
            active_partitions=_topics(group, member.owned.active, image),
            standby_partitions=_topics(group, member.owned.standby, image),
        )
        for member in members.values()
        if member.user_endpoint is not None
    ]


def _topics(group: StreamsGroup, tasks: Partitions | Epochs, image: MetadataImage) -> list[Struct]:
    """A topic may have fewer partitions than its subtopology has tasks."""
    known = group.topology.subtopologies if group.topology else {}
    found = []
    for subtopology, numbers in sorted(tasks.items()):
        for name in known[subtopology].inputs if subtopology in known else ():
            topic = image.topics.get(name)
            if topic is not None:
                partitions = [n for n in sorted(numbers) if n < len(topic.partitions)]
                found.append(Struct(topic=name, partitions=partitions))
    return found
