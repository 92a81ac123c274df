"""A job: a pipeline's spec with everything filled in that the manifest leaves to its surroundings.

The operator, the local runtime and `odradek pipeline run` write it as a JSON file; odradek_spark
reads it, and nothing else. `read_job` refuses what it cannot use by the field's name.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import field

from odradek_api.pipeline.rules import CEL_RULES, problems
from odradek_api.pipeline.spec import ClusterRef, Kafka, SparkPipelineSpec


class SpecError(Exception):
    """What is wrong, and which field of the spec says so: ("spec.steps[0].sql", "…")."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(f"{at}: {message}" if at else message)
        self.field = at
        self.message = message


class Job(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    name: str  # "page-views"
    namespace: str = "default"
    spec: SparkPipelineSpec
    clusters: dict[str, str] = field(default_factory=dict)  # "default/main" → bootstrap servers
    checkpoint: str = ""  # where, if the spec does not say; empty only for mode: batch
    directory: str = "."  # relative paths of the spec begin here
    master: str | None = None  # None: as spark-submit says
    client_rack: str = ""  # brokers of this rack are read from where they may
    status_file: str = ""
    end_with_parent: bool = False  # a runtime that was killed leaves no driver behind

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def checkpoint_location(self) -> str:
        return self.path(self.spec.checkpoint or self.checkpoint)

    def path(self, text: str) -> str:
        """A path of the spec; what has a scheme (s3a://…) stays."""
        if not text or re.match(r"^[a-z0-9+.-]+:/", text) or text.startswith("/"):
            return text
        return str((Path(self.directory) / text).resolve())

    def bootstrap(self, at: str, cluster: ClusterRef | None, kafka: Kafka) -> str:
        """Of a source or of the sink; what they do not say is the pipeline's."""
        if kafka.bootstrap_servers:
            return kafka.bootstrap_servers
        if cluster is None and self.spec.kafka.bootstrap_servers:
            return self.spec.kafka.bootstrap_servers
        wanted = cluster or self.spec.cluster
        if wanted is None:
            raise SpecError("spec.cluster", f"{at} needs a KafkaCluster, or bootstrapServers")
        key = cluster_key(wanted, self.namespace)
        if not self.clusters.get(key):
            where = f"spec.{at}.cluster" if cluster else "spec.cluster"
            raise SpecError(where, f"the addresses of KafkaCluster {key} are not known")
        return self.clusters[key]

    def client_config(self, kafka: Kafka) -> dict[str, str]:
        merged = {**self.spec.kafka.config, **kafka.config}
        return {name: _text(value) for name, value in merged.items()}


def cluster_key(ref: ClusterRef, namespace: str) -> str:
    return f"{ref.namespace or namespace}/{ref.name}"


def clusters_of(spec: SparkPipelineSpec, namespace: str) -> set[str]:
    """All KafkaClusters that a pipeline names, by namespace and name."""
    refs = [spec.cluster, spec.sink.cluster, *(source.cluster for source in spec.sources)]
    return {cluster_key(ref, namespace) for ref in refs if ref is not None}


def read_job(text: bytes) -> Job:
    try:
        job = msgspec.json.decode(text, type=Job)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        raise SpecError(at.strip("`."), what) from None
    except msgspec.DecodeError as error:
        raise SpecError("", f"the job is not JSON: {error}") from None
    wrong = [(r.field, r.message) for r in CEL_RULES if not r.holds(job.spec, None)]
    for at, message in (*wrong, *problems(job.spec)):
        raise SpecError(f"spec.{at}", message)
    return job


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
