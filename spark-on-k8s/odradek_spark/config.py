"""The job that this process runs, and the settings of Kafka's clients that follow from it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from odradek_api.base import ClusterRef
from odradek_api.pipeline.common import Kafka
from odradek_api.pipeline.job import Job, SpecError, read_job

# librdkafka, which looks at topics and mirrors, has other names for a few settings of Java's.
JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore", "ssl.keystore.type", "key.", "value.")


def load(path: Path) -> Job:
    """The job; settings may name environment variables as ${env:NAME} (secrets of a pod)."""
    try:
        return read_job(path.read_bytes())
    except OSError as error:
        raise SpecError("", f"{path} cannot be read: {error.strerror}") from None


def spark_kafka_options(
    job: Job, at: str, cluster: ClusterRef | None, kafka: Kafka
) -> dict[str, str]:
    """For Spark's connector: every setting of a client has the prefix `kafka.`."""
    config = {"bootstrap.servers": job.bootstrap(at, cluster, kafka)}
    if job.client_rack:
        config["client.rack"] = job.client_rack
    config |= job.client_config(kafka)
    return {f"kafka.{name}": environment(at, name, value) for name, value in config.items()}


def librdkafka_config(
    job: Job, at: str, cluster: ClusterRef | None, kafka: Kafka
) -> dict[str, str]:
    config = {"bootstrap.servers": job.bootstrap(at, cluster, kafka)}
    for name, value in job.client_config(kafka).items():
        if not name.startswith(JAVA_ONLY):
            config[name] = environment(at, name, value)
    return config


def environment(at: str, name: str, value: str) -> str:
    """ "${env:PASSWORD}" → what the environment says; anything else stays."""
    if not (value.startswith("${env:") and value.endswith("}")):
        return value
    found = os.environ.get(value[6:-1])
    if found is None:
        where = f"spec.{at}.kafka.config[{name}]"
        raise SpecError(where, f"there is no environment variable {value[6:-1]}")
    return found


def write_json(path: Path, value: object) -> None:
    """All or nothing: a reader never sees half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))
    partial.replace(path)
