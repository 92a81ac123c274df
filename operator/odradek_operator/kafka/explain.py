"""An action in one line, for `odradek plan`, Events and logs: what is done, and why.

restart brokers 0 and 3: log.cleaner.threads changed
"""

from __future__ import annotations

from odradek_operator.kafka.actions import (
    Action,
    AddVoter,
    AlterBrokerConfig,
    AlterTopicConfigs,
    CancelMoves,
    CreateTopics,
    DeleteTopics,
    Elect,
    GrowTopics,
    MoveDirectories,
    Reassign,
    Refuse,
    RemoveBroker,
    RemoveVoter,
    Restart,
    StartBrokers,
    StopBroker,
    Throttle,
    UnregisterBroker,
    Unthrottle,
    Wait,
    listed,
    named,
)


def explain(action: Action) -> str:
    why = action.reason.message
    if isinstance(action, Restart):  # its reason names the brokers too
        why = why.removeprefix(f"{named(action.brokers)}: ")
    return f"{what(action)}: {why}"


def what(action: Action) -> str:
    match action:
        case StartBrokers(brokers):
            return f"start {named(brokers)}"
        case Restart(brokers, _, unavailable):
            away = f"unavailable during the restart: {listed(unavailable)}"
            note = f" ({away})" if unavailable else ""
            return f"restart {named(brokers)}{note}"
        case Elect(partitions):
            return f"elect preferred leaders of {listed(partitions)}"
        case Reassign(moves):
            return f"move {len(moves)} partitions"
        case CancelMoves(partitions):
            return f"cancel the moves of {listed(partitions)}"
        case MoveDirectories(moves):
            return f"move {sum(map(len, moves.values()))} replicas to other directories"
        case Throttle(brokers, rate):
            return f"throttle moves to {rate / 1e6:g} MB/s on {named(brokers)}"
        case Unthrottle(brokers, topics):
            on = [named(brokers)] * bool(brokers) + [listed(topics, "topic")] * bool(topics)
            return f"remove the throttle from {' and '.join(on)}"
        case AlterBrokerConfig():
            return "alter all brokers"
        case AddVoter(broker):
            return f"add voter {broker}"
        case RemoveVoter(broker):
            return f"remove voter {broker}"
        case StopBroker(broker):
            return f"stop broker {broker}"
        case UnregisterBroker(broker):
            return f"unregister broker {broker}"
        case RemoveBroker(broker, delete_volumes):
            return (
                f"remove broker {broker} and {'delete' if delete_volumes else 'keep'} its volumes"
            )
        case _:
            return _what_topics(action)


def _what_topics(action: Action) -> str:
    match action:
        case CreateTopics(topics):
            return f"create {listed([t.name for t in topics], 'topic')}"
        case GrowTopics(partitions):
            return f"add partitions to {listed(partitions, 'topic')}"
        case AlterTopicConfigs(changes):
            return f"alter {listed(changes, 'topic')}"
        case DeleteTopics(topics):
            return f"delete {listed(topics, 'topic')}"
        case Wait():
            return "wait"
        case Refuse(_, subject):
            return f"refuse {subject}" if subject else "refuse"
    raise AssertionError(f"no text for action {action}")
