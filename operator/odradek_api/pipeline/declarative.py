"""A project of Spark Declarative Pipelines, which a SparkPipeline runs instead of its own steps."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from odradek_api.base import NonEmpty, Spec


class DeclarativeProject(Spec, frozen=True, kw_only=True):
    """A directory with spark-pipeline.yml and the Python and SQL files that it names."""

    path: Annotated[
        NonEmpty,
        Meta(
            description="The directory, for example project: relative to the manifest; on "
            "Kubernetes it is the ConfigMap kubernetes.files. An absolute path is a directory of "
            "the image."
        ),
    ]
