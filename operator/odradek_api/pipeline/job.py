"""A job: a pipeline's spec, plus addresses and paths that depend on where it runs.

The operator, the local runtime and `odradek pipeline run` write it as a JSON file; the driver
(odradek_spark) reads this file only. `read_job` refuses an invalid job and names the field.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import field

from odradek_api.base import ClusterRef, settings_text
from odradek_api.pipeline.common import Kafka, UserRef
from odradek_api.pipeline.outputs import outputs
from odradek_api.pipeline.rules import PIPELINE_RULES, problems
from odradek_api.pipeline.spec import SparkPipelineSpec


class SpecError(Exception):
    """An error and the field of the spec: ("spec.steps[0].sql", "…")."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(f"{at}: {message}" if at else message)
        self.field = at
        self.message = message


class NotReadyError(SpecError):
    """The cause is outside of the spec (a broker, an ACL), so another start may succeed."""


class Job(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    name: str  # "page-views"
    namespace: str = "default"
    spec: SparkPipelineSpec
    clusters: dict[str, str] = field(default_factory=dict)  # "default/main" → bootstrap servers
    users: dict[str, str] = field(default_factory=dict)  # KafkaUser → directory of its Secret
    checkpoint: str = ""  # used if the spec names none; empty only for mode: batch
    directory: str = "."  # relative paths of the spec are resolved against it
    data: str = ""  # instead of `directory`, for paths of data: tables, files, checkpoints
    master: str | None = None  # None: spark-submit sets it
    client_rack: str = ""  # client.rack: read from replicas of this rack where possible
    status_file: str = ""
    end_with_parent: bool = False  # stop when the parent process is gone

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def checkpoint_location(self) -> str:
        return self.path(self.spec.checkpoint or self.checkpoint)

    def path(self, text: str) -> str:
        """A path of data in the spec, made absolute; a URL (s3a://…) is returned unchanged."""
        if not text or re.match(r"^[a-z0-9+.-]+:/", text) or text.startswith("/"):
            return text
        return str((Path(self.data or self.directory) / text).resolve())

    def bootstrap(self, at: str, cluster: ClusterRef | None, kafka: Kafka) -> str:
        """Addresses for a source or the sink; the pipeline's own are the default."""
        if kafka.bootstrap_servers:
            return kafka.bootstrap_servers
        if cluster is None and self.spec.kafka.bootstrap_servers:
            return self.spec.kafka.bootstrap_servers
        wanted = cluster or self.spec.cluster
        if wanted is None:
            raise SpecError("spec.cluster", f"{at} needs a KafkaCluster, or bootstrapServers")
        key = wanted.key(self.namespace)
        if not self.clusters.get(key):
            where = f"spec.{at}.cluster" if cluster else "spec.cluster"
            raise SpecError(where, f"the addresses of KafkaCluster {key} are unknown")
        return self.clusters[key]

    def user_directory(self, at: str, user: UserRef | None) -> str:
        """Where the Secret of the user of a source or the sink is; empty: anonymous."""
        wanted = user or self.spec.user
        if wanted is None:
            return ""
        if wanted.name not in self.users:
            where = f"spec.{at}.user" if user else "spec.user"
            raise SpecError(where, f"the credentials of KafkaUser {wanted.name} are unknown")
        return self.users[wanted.name]

    def client_config(self, kafka: Kafka) -> dict[str, str]:
        return settings_text({**self.spec.kafka.config, **kafka.config})


def clusters_of(spec: SparkPipelineSpec, namespace: str) -> set[str]:
    """Keys ("namespace/name") of all KafkaClusters that a pipeline refers to."""
    refs = [spec.cluster, *(output.sink.cluster for output in outputs(spec))]
    refs += [source.cluster for source in spec.sources]
    refs += [lookup.cluster for lookup in spec.lookups]
    return {ref.key(namespace) for ref in refs if ref is not None}


def users_of(spec: SparkPipelineSpec) -> set[str]:
    """Names of all KafkaUsers that a pipeline logs in as."""
    refs = [spec.user, *(output.sink.user for output in outputs(spec))]
    refs += [source.user for source in spec.sources]
    refs += [lookup.user for lookup in spec.lookups]
    return {ref.name for ref in refs if ref is not None}


def read_job(text: bytes) -> Job:
    try:
        job = msgspec.json.decode(text, type=Job)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        raise SpecError(at.strip("`."), what) from None
    except msgspec.DecodeError as error:
        raise SpecError("", f"the job is not JSON: {error}") from None
    wrong = [(r.field, r.message) for r in PIPELINE_RULES if not r.holds(job.spec, None)]
    for at, message in (*wrong, *problems(job.spec)):
        raise SpecError(f"spec.{at}", message)
    return job
