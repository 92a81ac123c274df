"""The job that this process runs, and the Kafka client settings for its sources and sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odradek_api.base import ClusterRef
from odradek_api.pipeline.common import Kafka, UserRef
from odradek_api.pipeline.job import Job, SpecError, read_job
from odradek_spark import credentials

# Settings of Java clients that librdkafka (used for metadata and mirrors) does not have.
JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore", "ssl.keystore.type", "key.", "value.")


def load(path: Path) -> Job:
    """Reads the job; settings may refer to the environment as ${env:NAME}, for secrets."""
    try:
        return read_job(path.read_bytes())
    except OSError as error:
        raise SpecError("", f"{path} cannot be read: {error.strerror}") from None


def spark_kafka_options(
    job: Job, at: str, cluster: ClusterRef | None, kafka: Kafka, user: UserRef | None = None
) -> dict[str, str]:
    """For Spark's connector, in which client settings have the prefix `kafka.`."""
    directory = job.user_directory(at, user)
    own = credentials.java(at, directory) if directory else {}
    config = {**own, "bootstrap.servers": _bootstrap(job, at, cluster, kafka, own)}
    if job.client_rack:
        config["client.rack"] = job.client_rack
    config |= job.client_config(kafka)
    return {f"kafka.{name}": environment(at, name, value) for name, value in config.items()}


def librdkafka_config(
    job: Job, at: str, cluster: ClusterRef | None, kafka: Kafka, user: UserRef | None = None
) -> dict[str, str]:
    directory = job.user_directory(at, user)
    own = credentials.librdkafka(at, directory) if directory else {}
    config = {**own, "bootstrap.servers": _bootstrap(job, at, cluster, kafka, own)}
    for name, value in job.client_config(kafka).items():
        if not name.startswith(JAVA_ONLY):
            config[name] = environment(at, name, value)
    return config


def _bootstrap(
    job: Job, at: str, cluster: ClusterRef | None, kafka: Kafka, own: Mapping[str, str]
) -> str:
    """With a user, the addresses are those of the listener where it can log in."""
    given = kafka.bootstrap_servers or (cluster is None and job.spec.kafka.bootstrap_servers)
    return given or own.get("bootstrap.servers") or job.bootstrap(at, cluster, kafka)


def environment(at: str, name: str, value: str) -> str:
    """Of a setting of Kafka's clients."""
    return from_environment(f"spec.{at}.kafka.config[{name}]", value)


def from_environment(where: str, value: str) -> str:
    """ "${env:PASSWORD}" → its value in the environment; other values are returned unchanged."""
    if not (value.startswith("${env:") and value.endswith("}")):
        return value
    found = os.environ.get(value[6:-1])
    if found is None:
        raise SpecError(where, f"environment variable {value[6:-1]} is not set")
    return found


def write_json(path: Path, value: object) -> None:
    """Writes atomically: a reader never sees a partial file."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))
    partial.replace(path)
