"""Options of Spark that follow from a spec."""

import json
from typing import Any

import msgspec
import pytest

from odradek_api.pipeline.sources import Source
from odradek_spark.session.jars import SPARK_VERSION, hashes
from odradek_spark.session.start import settings
from odradek_spark.sources.options import kafka_options


def source(**fields: Any) -> Source:
    return msgspec.convert({"topics": ["a"], **fields}, Source)


def test_where_a_source_begins() -> None:
    two = {"a": 2}
    assert kafka_options(source(), two, batch=False)["startingOffsets"] == "earliest"
    given = kafka_options(source(**{"from": "offsets"}, offsets={"a": {"1": 9}}), two, batch=False)
    assert json.loads(given["startingOffsets"]) == {"a": {"0": -2, "1": 9}}
    given = kafka_options(
        source(**{"from": "timestamp"}, timestamp="1970-01-01T00:00:02Z"), two, batch=False
    )
    assert given["startingTimestamp"] == "2000"
    assert "startingOffsets" not in given


def test_a_batch_has_an_end() -> None:
    given = kafka_options(source(until={"a": {"0": 3}}), {"a": 2}, batch=True)
    assert json.loads(given["endingOffsets"]) == {"a": {"0": 3, "1": -1}}
    given = kafka_options(source(maxOffsetsPerTrigger=5), {"a": 2}, batch=True)
    assert "maxOffsetsPerTrigger" not in given


def test_a_users_settings_win() -> None:
    made = settings("x", "local[2]", {"spark.ui.enabled": True}, "a.jar")
    assert made["spark.ui.enabled"] == "true"
    assert made["spark.jars"] == "a.jar"
    on_kubernetes = settings("x", None, {}, "")
    assert "spark.master" not in on_kubernetes
    assert "spark.driver.host" not in on_kubernetes


def test_the_jars_are_of_the_pinned_version() -> None:
    pyspark = pytest.importorskip("pyspark", reason="pyspark is missing: make spark")

    assert pyspark.__version__ == SPARK_VERSION
    assert f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar" in hashes()
