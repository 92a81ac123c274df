"""For the code of a project of Spark Declarative Pipelines: how to reach the pipeline's cluster.

    from pyspark import pipelines as dp
    from odradek_spark.project import kafka_options

    @dp.table
    def visits():
        reader = spark.readStream.format("kafka").options(**kafka_options())
        return reader.option("subscribe", "visits").load()

The driver sets the job before it imports the project (jobs/declarative.py).
"""

from __future__ import annotations

from odradek_api.pipeline.job import Job
from odradek_spark.config import spark_kafka_options
from odradek_spark.sources.options import FETCH_OFFSETS

_job: Job | None = None


def kafka_options() -> dict[str, str]:
    """Options for `format("kafka")`, to read and to write: addresses, credentials, settings.

    They are those of spec.cluster, spec.user and spec.kafka of the SparkPipeline.
    """
    if _job is None:
        raise RuntimeError(
            "kafka_options() is for projects that a SparkPipeline with spec.sdp runs, for example "
            "with `odradek pipeline run`; with spark-pipelines, set the options yourself"
        )
    return {
        **FETCH_OFFSETS,
        **spark_kafka_options(_job, "kafka", None, _job.spec.kafka),
    }


def set_job(job: Job) -> None:
    """Called by the driver."""
    global _job
    _job = job
