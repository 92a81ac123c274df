"""Checks topics with the Kafka cluster before Spark starts: do they exist, how many partitions?

Spark reports an unknown topic with a stack trace after half a minute; this names the field.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_api.pipeline.common import UserRef
from odradek_api.pipeline.job import Job, NotReadyError, SpecError
from odradek_api.pipeline.outputs import outputs
from odradek_api.pipeline.sources import Source
from odradek_spark.config import librdkafka_config
from odradek_spark.credentials import granting

TIMEOUT_S = 30.0


def topics_of(config: Mapping[str, str], at: str) -> dict[str, int]:
    """Topic → number of partitions in the cluster of `config`."""
    try:
        admin = AdminClient({**config, "socket.connection.setup.timeout.ms": 10_000,
                             "log_level": 0})  # fmt: skip
        found = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        message = error.args[0].str() if error.args else str(error)
        where = config["bootstrap.servers"]
        raise NotReadyError(at, f"no broker of {where} answers: {message}") from None
    return {name: len(topic.partitions) for name, topic in found.items()}


def cluster_field(at: str, given: object, own: object) -> str:
    """The field that names the cluster."""
    if given is not None:
        return f"spec.{at}.{'kafka.bootstrapServers' if isinstance(given, str) else 'cluster'}"
    return "spec.kafka.bootstrapServers" if own else "spec.cluster"


def source_partitions(job: Job, number: int) -> dict[str, int]:
    """The topics of a source and their partitions; refuses topics that do not exist."""
    source = job.spec.sources[number]
    if not source.kafka_source:
        return {}
    at = f"sources[{number}]"
    config = librdkafka_config(job, at, source.cluster, source.kafka, source.user)
    given = source.kafka.bootstrap_servers or source.cluster
    existing = topics_of(config, cluster_field(at, given, job.spec.kafka.bootstrap_servers))
    if source.topic_pattern is not None:
        wanted = re.compile(source.topic_pattern)
        return {name: n for name, n in existing.items() if wanted.fullmatch(name)}
    for n, name in enumerate(source.topics):
        needs = _needs(source.user or job.spec.user, "read")
        require(f"spec.{at}.topics[{n}]", name, existing, config, needs)
    _check_offsets(at, source, existing)
    return {name: existing[name] for name in source.topics}


def lookup_topics(job: Job) -> None:
    """Requires the topics of lookups."""
    for number, lookup in enumerate(job.spec.lookups):
        if lookup.topic is None:
            continue
        at = f"lookups[{number}]"
        config = librdkafka_config(job, at, lookup.cluster, lookup.kafka, lookup.user)
        given = lookup.kafka.bootstrap_servers or lookup.cluster
        existing = topics_of(config, cluster_field(at, given, job.spec.kafka.bootstrap_servers))
        needs = _needs(lookup.user or job.spec.user, "read")
        require(f"spec.{at}.topic.name", lookup.topic.name, existing, config, needs)


def sink_topics(job: Job, partitions: Sequence[Mapping[str, int]]) -> None:
    """Requires the topics of sinks and of dead letters; creates the topics of mirrors.

    `partitions`: of the topics of each source.
    """
    own = job.spec.kafka.bootstrap_servers
    for output in outputs(job.spec):
        sink, at = output.sink, f"spec.{output.at}"
        if sink.topic is None and sink.mirror is None:
            continue
        config = librdkafka_config(job, output.at, sink.cluster, sink.kafka, sink.user)
        given = sink.kafka.bootstrap_servers or sink.cluster
        existing = topics_of(config, cluster_field(output.at, given, own))
        if sink.topic is not None:
            needs = _needs(sink.user or job.spec.user, "write")
            require(f"{at}.topic.name", sink.topic.name, existing, config, needs)
        if sink.mirror is not None:
            read = [found for source, found in zip(job.spec.sources, partitions, strict=True)
                    if output.view in ("", source.name)]  # fmt: skip
            wanted = {f"{sink.mirror.prefix}{name}": n for one in read for name, n in one.items()}
            _mirror_topics(f"{at}.mirror", config, wanted, existing,
                           create=sink.mirror.create_topics)  # fmt: skip
    if job.spec.dead_letter is not None:
        config = librdkafka_config(job, "deadLetter", None, job.spec.kafka)
        existing = topics_of(config, cluster_field("deadLetter", None, own))
        needs = _needs(job.spec.user, "write")
        require("spec.deadLetter.topic", job.spec.dead_letter.topic, existing, config, needs)


def require(
    at: str,
    name: str,
    existing: Iterable[str],
    config: Mapping[str, str],
    needs: tuple[str, str] | None = None,
) -> None:
    """`needs`: the KafkaUser and the operation that it lacks, if ACLs may hide the topic."""
    if name in existing:
        return
    close = difflib.get_close_matches(name, list(existing), 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    message = f"topic {name} does not exist on {config['bootstrap.servers']}"
    if needs is None:
        raise SpecError(at, message + hint)
    user, operation = needs
    message += f", or KafkaUser {user} may not {operation} it{hint}; {granting(name, operation)}"
    raise NotReadyError(at, message)


def _needs(user: UserRef | None, operation: str) -> tuple[str, str] | None:
    return (user.name, operation) if user is not None else None


def _check_offsets(at: str, source: Source, existing: Mapping[str, int]) -> None:
    for field, offsets in (("offsets", source.offsets), ("until", source.until)):
        for topic, own in offsets.items():
            if topic not in source.topics:
                raise SpecError(f"spec.{at}.{field}.{topic}", "the source does not read this topic")
            for partition in own:
                if int(partition) >= existing[topic]:
                    message = f"topic {topic} has only {existing[topic]} partitions"
                    raise SpecError(f"spec.{at}.{field}.{topic}.{partition}", message)


def _mirror_topics(
    at: str,
    config: Mapping[str, str],
    wanted: Mapping[str, int],
    existing: Mapping[str, int],
    *,
    create: bool,
) -> None:
    missing = {name: n for name, n in wanted.items() if name not in existing}
    if missing and not create:
        require(at, next(iter(missing)), existing, config)
    for name, n in wanted.items():
        if name in existing and existing[name] < n:
            message = (
                f"topic {name} has {existing[name]} partitions in the target cluster, {n} needed"
            )
            raise SpecError(at, message)
    if not missing:
        return
    admin = AdminClient(dict(config))
    made = admin.create_topics([NewTopic(name, n) for name, n in missing.items()])
    for name, future in made.items():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            message = f"topic {name} cannot be created: {error}"
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                message += f"; {granting(name, 'create, write')}"
                raise NotReadyError(at, message) from None
            raise SpecError(at, message) from None
