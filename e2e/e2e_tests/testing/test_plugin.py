"""The pytest plugin, as its users run it: the fixture, the marker, reports, xdist."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


def test_every_test_gets_an_empty_kafka(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        pids = set()

        def test_one(kafka):
            kafka.produce("orders", "a")
            kafka.client.find_coordinator
            pids.add(kafka.brokers[0].pid)

        def test_two(kafka):
            assert kafka.topics.list() == [] == kafka.groups.list()
            pids.add(kafka.brokers[0].pid)
            assert len(pids) == 1, "one broker serves the session"
            kafka.brokers[0].kill()

        def test_three(kafka):
            kafka.produce("orders", "a")
            assert kafka.brokers[0].pid not in pids, "a killed broker is replaced"
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_marker_chooses_the_kafka(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.kafka(brokers=2, racks=["x", "y"], config={"num.partitions": 5})
        class TestTwo:
            def test_one(self, kafka):
                assert [b.rack for b in kafka.brokers] == ["x", "y"]
                kafka.topics.create("orders")
                assert kafka.topics.partitions("orders") == 5
                TestTwo.kafka = kafka

            def test_two(self, kafka):
                assert kafka is TestTwo.kafka, "equal arguments share a cluster"

        def test_plain(kafka):
            assert len(kafka.brokers) == 1

        @pytest.mark.kafka(brokers=0)
        def test_bad(kafka): ...

        @pytest.mark.kafka(3)
        def test_positional(kafka): ...
    """)
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines_random(["*brokers=0: expected at least 1*", "*keyword arguments*"])


def test_a_failure_shows_the_records_and_the_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(kafka):
            kafka.produce("orders", "a", partition=0)
            kafka.produce("orders", "c", key="k", partition=0)
            assert kafka.read("orders") == ["a", "b"]
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "E*missing: Record('b')",
        "E*not expected: Record('c', key='k') (orders-0@1)",
        "*log of Kafka broker 1*",
        "*registered with broker epoch*",
    ])  # fmt: skip


def test_a_broker_that_dies_by_itself_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os, signal

        def test_it(kafka):
            os.kill(kafka.brokers[0].pid, signal.SIGABRT)
            while kafka.brokers[0].is_alive():
                pass

        def test_next(kafka):
            kafka.produce("orders", "a")
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*broker 1 died (exit code -6)*"])


def test_workers_of_xdist_have_brokers_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("n", range(8))
        def test_it(kafka, n, worker_id, record_property):
            assert kafka.topics.list() == []
            kafka.produce("orders", "a")
            assert kafka.read("orders") == ["a"]
            print(f"<{worker_id} {kafka.bootstrap}>")
    """)
    result = pytester.runpytest_subprocess("-n2", "-rP")
    result.assert_outcomes(passed=8)
    places = set(re.findall(r"<(gw\d) (\S+)>", result.stdout.str()))
    assert len({worker for worker, _ in places}) == 2
    assert len(places) == 2, "two workers, two brokers"


def test_nothing_happens_without_the_fixture(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile("""
        import sys

        def test_it():
            assert not [name for name in sys.modules if name.startswith("odradek.testing")]
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    listed = pytester.runpytest_subprocess("--markers").stdout.str()
    assert "@pytest.mark.kafka(brokers=1" in listed
