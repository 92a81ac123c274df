"""Rules of requests about streams groups; `access_rules.py` has the table."""

from odradek_broker.group.streams.describe import unknown
from odradek_broker.group.streams.topology import topics_named
from odradek_broker.handlers.access_groups import GROUP_DENIED
from odradek_broker.handlers.access_topics import DESCRIBE, GROUP, READ, TOPIC, TOPIC_DENIED
from odradek_broker.handlers.authorization import Call, Check, without
from odradek_broker.handlers.streams_group_heartbeat import refusal
from odradek_broker.handlers.streams_support import check_topics
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

HIDDEN = "The described group uses topics that the client is not authorized to describe."


async def member(check: Check, request: Struct, call: Call) -> Struct:
    """READ of the group, and DESCRIBE of every topic in its topology."""
    if not check.allows(READ, GROUP, request.group_id):
        return refusal(GROUP_DENIED, None)
    if request.topology is not None:
        try:
            check_topics(request.topology)
        except KafkaError:
            return await call(request)  # the handler refuses it
        names = topics_named(request.topology)
        if check.split(DESCRIBE, TOPIC, names, lambda name: name)[1]:
            return refusal(TOPIC_DENIED, None)
    return await call(request)


async def describe(check: Check, request: Struct, call: Call) -> Struct:
    """DESCRIBE of the groups; one with topics that may not be described is hidden."""
    rest, refused = check.split(DESCRIBE, GROUP, request.group_ids, lambda name: name)
    response = await call(without(request, group_ids=rest))
    shown = [
        group if _sees_topics(check, group) else unknown(group.group_id, HIDDEN, TOPIC_DENIED)
        for group in response.groups
    ]
    response.groups = [*(unknown(name, None, GROUP_DENIED) for name in refused), *shown]
    return response


def _sees_topics(check: Check, group: Struct) -> bool:
    names = topics_named(group.topology) if group.topology is not None else ()
    return all(check.allows(DESCRIBE, TOPIC, name) for name in sorted(names))
