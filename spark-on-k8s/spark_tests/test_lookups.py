"""Lookups against a real broker, real tables and a database: joined, read again, refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from odradek_api.pipeline.job import SpecError
from odradek_testkit.pipelines import PATIENCE_S, Pipelines
from spark_tests.test_jobs import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDER = {"type": "json", "schema": "id INT NOT NULL, customer STRING NOT NULL"}
CITY = {"type": "json", "schema": "city STRING NOT NULL"}
JOIN = "SELECT id, city FROM orders LEFT JOIN customers ON customer = customers._key"
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


def orders(pipelines: Pipelines, topic: str, *rows: tuple[int, str]) -> None:
    pipelines.produce(topic, [{"id": n, "customer": customer} for n, customer in rows])


def of_topic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": "customers", "topic": {"name": name, "format": CITY}, **more}


def joined(pipelines: Pipelines, topic: str) -> dict[int, str | None]:
    return {row["id"]: row.get("city") for row in pipelines.values(topic)}


def test_the_newest_record_of_each_key_of_a_topic(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """Older records may be of any form; a tombstone is no row; a key moves to a new partition."""
    read, customers, out = pipelines.topic(1), pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(customers, [b"{", {"city": "Bonn"}], key=b"a", timestamp=1000)
    pipelines.produce(customers, [{"city": "Köln"}, None], key=b"gone", timestamp=1000)
    pipelines.produce(customers, [{"city": "Ulm"}], key=b"b", timestamp=9000)
    pipelines.produce(customers, [{"city": "without a key"}])
    admin = AdminClient({"bootstrap.servers": pipelines.bootstrap})
    for made in admin.create_partitions([NewPartitions(customers, 2)]).values():
        made.result(PATIENCE_S)
    pipelines.produce(customers, [{"city": "Berlin"}], key=b"a", partition=1, timestamp=5000)
    pipelines.produce(customers, [{"city": "too old"}], key=b"b", partition=1, timestamp=5000)
    orders(pipelines, read, (1, "a"), (2, "b"), (3, "gone"), (4, "nobody"))
    spec: dict[str, Any] = {
        "sources": [{"name": "orders", "topics": [read], "format": ORDER}],
        "lookups": [of_topic(customers)],
        "steps": [{"sql": JOIN}],
        "sink": {"topic": {"name": out, "delivery": "exactlyOnce"}},
    }
    said = run(spark, pipelines, **spec)
    assert joined(pipelines, out) == {1: "Berlin", 2: "Ulm", 3: None, 4: None}
    assert len(pipelines.records(out)) == 4
    assert said.queries["main"].rows == 4, "records of a lookup are no rows of a batch"
    run(spark, pipelines, **spec)
    assert len(pipelines.records(out)) == 4

    spec["sink"] = {"topic": {"name": out, "delivery": "exactlyOnce", "writers": 2}}
    with pytest.raises(SpecError, match=r"spec\.sink\.topic\.writers: the rows of lookups change"):
        run(spark, pipelines, **spec)


@contextmanager
def streaming(spark: SparkSession, pipelines: Pipelines, **spec: Any) -> Iterator[None]:
    from odradek_spark.jobs.run import JobRun

    job = JobRun(pipelines.job(mode="streaming", **spec))
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(job.run_in(spark)))
    thread.start()
    try:
        yield
    finally:
        job.stop()
        thread.join()
    assert codes == [0], job.status


class Kind:
    """A lookup of one kind with the columns _key and city, which has one row and can change it."""

    def __init__(self, spark: SparkSession, pipelines: Pipelines, kind: str) -> None:
        self._spark, self._pipelines = spark, pipelines
        path = str(pipelines.directory / kind)
        log = str(pipelines.directory / "derby.log")  # otherwise in the working directory
        jvm: Any = spark._jvm
        jvm.java.lang.System.setProperty("derby.stream.error.file", log)
        url = f"jdbc:derby:{path};create=true"
        topic = pipelines.topic(1)
        jdbc = {"url": url, "driver": DERBY,
                "query": 'SELECT id AS "_key", city AS "city" FROM customers'}  # fmt: skip
        found: dict[str, tuple[dict[str, Any], Callable[[str], None]]] = {
            "topic": (of_topic(topic), lambda city: self._produce(topic, city)),
            "parquet": ({"table": {"path": path}}, lambda city: self._parquet(path, city)),
            "delta": ({"table": {"path": path, "format": "delta"}},
                      lambda city: self._delta(path, city)),
            "jdbc": ({"jdbc": jdbc}, lambda city: self._sql(url, city)),
        }  # fmt: skip
        fields, self.change = found[kind]
        self.lookup: dict[str, Any] = {"name": "customers", **fields}

    def _produce(self, topic: str, city: str) -> None:
        self._pipelines.produce(topic, [{"city": city}], key=b"a")

    def _parquet(self, path: str, city: str) -> None:
        """Another file: the join finds one row more."""
        frame = self._spark.createDataFrame([("a", city)], "_key STRING, city STRING")
        frame.write.mode("append").parquet(path)

    def _delta(self, path: str, city: str) -> None:
        frame = self._spark.createDataFrame([("a", city)], "_key STRING, city STRING")
        frame.write.format("delta").mode("overwrite").save(path)

    def _sql(self, url: str, city: str) -> None:
        jvm: Any = self._spark._jvm
        driver = jvm.org.apache.derby.iapi.jdbc.AutoloadedDriver()
        database = driver.connect(url, jvm.java.util.Properties())
        try:
            if not database.getMetaData().getTables(None, None, "CUSTOMERS", None).next():
                statement = database.createStatement()
                statement.execute("CREATE TABLE customers (id VARCHAR(9), city VARCHAR(9))")
                statement.execute("INSERT INTO customers VALUES ('a', '')")
            database.createStatement().execute(f"UPDATE customers SET city = '{city}'")
        finally:
            database.close()


# 10 to 20 s each
LONG = [pytest.param(kind, marks=pytest.mark.long) for kind in ("parquet", "delta", "jdbc")]


@pytest.mark.parametrize("kind", ["topic", *LONG])
def test_a_lookup_is_read_again(spark: SparkSession, pipelines: Pipelines, kind: str) -> None:
    """While the query runs; and not before `refresh` is over."""
    made = Kind(spark, pipelines, kind)
    made.change("Bonn")
    read, out = pipelines.topic(1), pipelines.topic(1)
    orders(pipelines, read, (0, "a"))
    with streaming(
        spark, pipelines,
        sources=[{"name": "orders", "topics": [read], "format": ORDER}],
        lookups=[{**made.lookup, "refresh": "0 seconds"}],
        steps=[{"sql": JOIN}],
        sink={"topic": {"name": out}},
    ):  # fmt: skip
        wait(lambda: joined(pipelines, out) == {0: "Bonn"}, pipelines, out)
        made.change("Ulm")
        number = 0

        def seen() -> bool:
            nonlocal number
            number += 1
            orders(pipelines, read, (number, "a"))
            return "Ulm" in [row.get("city") for row in pipelines.values(out)]

        wait(seen, pipelines, out)


def wait(condition: Callable[[], bool], pipelines: Pipelines, topic: str) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, pipelines.values(topic)
        time.sleep(0.2)


def test_a_lookup_is_kept_in_memory(spark: SparkSession, pipelines: Pipelines) -> None:
    """With refresh: 1 hour a later batch joins with the rows of the first one."""
    read, customers, out = pipelines.topic(1), pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(customers, [{"city": "Bonn"}], key=b"a")
    orders(pipelines, read, (1, "a"))
    with streaming(
        spark, pipelines,
        sources=[{"name": "orders", "topics": [read], "format": ORDER}],
        lookups=[of_topic(customers, refresh="1 hour")],
        steps=[{"sql": JOIN}],
        sink={"topic": {"name": out}},
    ):  # fmt: skip
        wait(lambda: joined(pipelines, out) == {1: "Bonn"}, pipelines, out)
        pipelines.produce(customers, [{"city": "Ulm"}], key=b"a")
        orders(pipelines, read, (2, "a"))
        wait(lambda: 2 in joined(pipelines, out), pipelines, out)
    assert joined(pipelines, out) == {1: "Bonn", 2: "Bonn"}


def test_what_is_refused(spark: SparkSession, pipelines: Pipelines) -> None:
    """A newest record that does not parse, a missing topic, a lookup as a stream, a database."""
    read, customers = pipelines.topic(1), pipelines.topic(1)
    orders(pipelines, read, (1, "a"))
    pipelines.produce(customers, [{"city": "Bonn"}, {"town": "Ulm"}], key=b"a")
    spec: dict[str, Any] = {
        "sources": [{"name": "orders", "topics": [read], "format": ORDER}],
        "lookups": [of_topic(customers)],
        "steps": [{"sql": JOIN}],
        "sink": {"table": {"path": "out"}},
    }
    said = run(spark, pipelines, **spec)
    assert said.field == "spec.lookups"
    assert f"lookup customers: {customers}-0 offset 1 cannot be parsed: city is" in said.message
    assert "write a record with this key" in said.message
    spec["checkpoint"] = "another"
    only = {**spec, "steps": [{"sql": "SELECT city FROM customers"}]}
    with pytest.raises(SpecError, match=r"spec\.steps: .*made of lookups only"):
        run(spark, pipelines, **only)
    with pytest.raises(SpecError, match=r"spec\.lookups\[0\]\.topic\.name: topic nobody does not"):
        run(spark, pipelines, **{**spec, "lookups": [of_topic("nobody")]})
    table = {"name": "customers", "table": {"path": "nothing", "format": "delta"}}
    with pytest.raises(SpecError, match=r"spec\.lookups\[0\]\.table: "):
        run(spark, pipelines, **{**spec, "lookups": [table]})
    jdbc = {"url": f"jdbc:derby:{pipelines.directory}/none", "driver": DERBY, "table": "t",
            "password": "${env:ODRADEK_NO_SUCH_VARIABLE}"}  # fmt: skip
    with pytest.raises(SpecError, match=r"spec\.lookups\[0\]\.jdbc\.password: .*is not set"):
        run(spark, pipelines, **{**spec, "lookups": [{"name": "customers", "jdbc": jdbc}]})
    del jdbc["password"]
    with pytest.raises(SpecError, match=r"spec\.lookups\[0\]\.jdbc: .*connect to the database"):
        run(spark, pipelines, **{**spec, "lookups": [{"name": "customers", "jdbc": jdbc}]})


def test_plan_preview_and_tests_know_lookups(spark: SparkSession, pipelines: Pipelines) -> None:
    from odradek_spark.jobs.build import check_topics
    from odradek_spark.jobs.look import analyse, preview
    from odradek_spark.jobs.samples import run_tests

    read, customers = pipelines.topic(1), pipelines.topic(1)
    orders(pipelines, read, (1, "a"))
    pipelines.produce(customers, [{"city": "Bonn"}], key=b"a")
    given = {"orders": [{"id": 7, "customer": "x"}], "customers": [{"_key": "x", "city": "Ulm"}]}
    job = pipelines.job(
        sources=[{"name": "orders", "topics": [read], "format": ORDER}],
        lookups=[of_topic(customers)],
        steps=[{"name": "placed", "sql": JOIN}],
        sink={"table": {"path": "out"}},
        tests=[{"name": "a city", "rows": given, "expect": [{"id": 7, "city": "Ulm"}]}],
    )
    partitions = check_topics(job)
    names = ["orders", "customers", "placed"]
    assert [view.name for view in analyse(spark, job, partitions).views] == names
    views = {view.name: view.rows for view in preview(spark, job, partitions, 5).views}
    assert views["customers"] == [["Bonn"]]
    assert views["placed"] == [["1", "Bonn"]]
    (outcome,) = run_tests(spark, job)
    assert outcome.passed, outcome
