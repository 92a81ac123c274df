"""One Spark session and one broker for all tests of a process: both take long to start."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek_testkit.engines import Server, engine
from odradek_testkit.pipelines import Pipelines

# A test's JVM lives for a minute or two: the cheap compiler is the fast one.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


CONNECT_TOKEN = "of-the-tests"  # of Spark Connect, which declarative pipelines use


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not os.environ.get("ODRADEK_REQUIRE_TOOLS"):
        pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    from odradek_spark.session import connect
    from odradek_spark.session.start import DELTA, start_session

    settings = {
        **connect.settings(CONNECT_TOKEN),
        **DELTA,
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # compiling costs more than these rows
    }
    session = start_session("tests", "local[2,2]", settings)
    session.sparkContext.setLogLevel("OFF")  # failures are what many tests are about
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Server]:
    """Ours, or Apache Kafka with ODRADEK_TEST_ENGINE=apache."""
    with engine()({"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def pipelines(broker: Server, tmp_path: Path) -> Pipelines:
    return Pipelines(broker.bootstrap, tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark is slow to start: on a busy machine a test may wait a minute for its session."""
    for item in items:
        if item.get_closest_marker("spark") is not None and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))
