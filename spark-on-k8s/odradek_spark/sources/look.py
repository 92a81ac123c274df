"""What the clusters say before Spark is asked: which topics are there, with how many partitions.

Spark would answer an unknown topic with a stack trace after half a minute; this names the field.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.sources import Source
from odradek_spark.config import librdkafka_config

LOOK_S = 30.0


def topics_of(config: Mapping[str, str], at: str) -> dict[str, int]:
    """Topic → partitions, of the cluster that `config` names."""
    try:
        admin = AdminClient({**config, "socket.connection.setup.timeout.ms": 10_000,
                             "log_level": 0})  # fmt: skip
        found = admin.list_topics(timeout=LOOK_S).topics
    except KafkaException as error:
        said = error.args[0].str() if error.args else str(error)
        where = config["bootstrap.servers"]
        raise SpecError(at, f"no broker of {where} answers: {said}") from None
    return {name: len(topic.partitions) for name, topic in found.items()}


def cluster_field(at: str, given: object, own: object) -> str:
    """Which field says where the cluster is."""
    if given is not None:
        return f"spec.{at}.{'kafka.bootstrapServers' if isinstance(given, str) else 'cluster'}"
    return "spec.kafka.bootstrapServers" if own else "spec.cluster"


def source_partitions(job: Job, number: int) -> dict[str, int]:
    """The topics of a source and their partitions; unknown ones are refused by their field."""
    source = job.spec.sources[number]
    if not source.kafka_source:
        return {}
    at = f"sources[{number}]"
    config = librdkafka_config(job, at, source.cluster, source.kafka)
    given = source.kafka.bootstrap_servers or source.cluster
    there = topics_of(config, cluster_field(at, given, job.spec.kafka.bootstrap_servers))
    if source.topic_pattern is not None:
        wanted = re.compile(source.topic_pattern)
        return {name: n for name, n in there.items() if wanted.fullmatch(name)}
    for n, name in enumerate(source.topics):
        require(f"spec.{at}.topics[{n}]", name, there, config)
    _check_offsets(at, source, there)
    return {name: there[name] for name in source.topics}


def sink_topics(job: Job, partitions: Mapping[str, int]) -> None:
    """The sink's topic and the dead letters' are there; a mirror's are made."""
    sink = job.spec.sink
    given = sink.kafka.bootstrap_servers or sink.cluster
    own = job.spec.kafka.bootstrap_servers
    if sink.topic is not None or sink.mirror is not None:
        config = librdkafka_config(job, "sink", sink.cluster, sink.kafka)
        there = topics_of(config, cluster_field("sink", given, own))
        if sink.topic is not None:
            require("spec.sink.topic.name", sink.topic.name, there, config)
        if sink.mirror is not None:
            wanted = {f"{sink.mirror.prefix}{name}": n for name, n in partitions.items()}
            _mirror_topics(config, wanted, there, create=sink.mirror.create_topics)
    if job.spec.dead_letter is not None:
        config = librdkafka_config(job, "deadLetter", None, job.spec.kafka)
        there = topics_of(config, cluster_field("deadLetter", None, own))
        require("spec.deadLetter.topic", job.spec.dead_letter.topic, there, config)


def require(at: str, name: str, there: Iterable[str], config: Mapping[str, str]) -> None:
    if name in there:
        return
    close = difflib.get_close_matches(name, list(there), 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise SpecError(at, f"there is no topic {name} on {config['bootstrap.servers']}{hint}")


def _check_offsets(at: str, source: Source, there: Mapping[str, int]) -> None:
    for field, offsets in (("offsets", source.offsets), ("until", source.until)):
        for topic, own in offsets.items():
            if topic not in source.topics:
                raise SpecError(f"spec.{at}.{field}.{topic}", "this topic is not read")
            for partition in own:
                if int(partition) >= there[topic]:
                    said = f"{topic} has {there[topic]} partitions"
                    raise SpecError(f"spec.{at}.{field}.{topic}.{partition}", said)


def _mirror_topics(
    config: Mapping[str, str], wanted: Mapping[str, int], there: Mapping[str, int], *, create: bool
) -> None:
    missing = {name: n for name, n in wanted.items() if name not in there}
    if missing and not create:
        require("spec.sink.mirror", next(iter(missing)), there, config)
    for name, n in wanted.items():
        if name in there and there[name] < n:
            said = f"{name} has {there[name]} partitions there and {n} here"
            raise SpecError("spec.sink.mirror", said)
    if not missing:
        return
    admin = AdminClient(dict(config))
    made = admin.create_topics([NewTopic(name, n) for name, n in missing.items()])
    for name, future in made.items():
        try:
            future.result(LOOK_S)
        except KafkaException as error:
            raise SpecError("spec.sink.mirror", f"{name} cannot be made: {error}") from None
