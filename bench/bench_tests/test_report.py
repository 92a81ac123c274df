"""The page and the plots from invented results, and the runner with invented cases."""

from pathlib import Path

import pytest

from odradek_bench import report
from odradek_bench.case import Bench, Case, Metric, Sample, UnavailableError
from odradek_bench.cases import ALL
from odradek_bench.results import CaseResult, Results
from odradek_bench.runner import line, number, run_cases
from odradek_bench.verify import WrongAnswerError


@pytest.fixture
def results() -> Results:
    rates = {"MB/s": "more", "broker CPU s/GB": "less"}
    made = Results(seed=1, smoke=False, machine={"cores": 2}, versions={"apache kafka": "4.3.1"})
    limit = CaseResult("limit-write", "socket to file", [{"name": "MB/s", "better": "more"}])
    limit.samples = {"limit": [{"MB/s": 1000.0}]}
    bulk = CaseResult(
        "produce-1k-acks-1-1p",
        "bulk produce",
        [{"name": name, "better": better} for name, better in rates.items()],
        limit="limit-write",
    )
    bulk.samples = {
        "kafka": [{"MB/s": 100.0, "broker CPU s/GB": 8.0}, {"MB/s": 120.0, "broker CPU s/GB": 8.0}],
        "odradek": [{"MB/s": 90.0, "broker CPU s/GB": 2.0}, {"MB/s": 75.0, "broker CPU s/GB": 2.0}],
    }
    ack = CaseResult("latency-1000", "latency", [{"name": "ack p50 ms", "better": "less"}])
    ack.samples = {"kafka": [{"ack p50 ms": 0.5}], "odradek": [{"ack p50 ms": 0.1}]}
    made.cases = [limit, bulk, ack]
    return made


def test_the_table_shows_limit_kafka_ours_and_the_ratio(results: Results) -> None:
    text = report.page(results, ["ratios.png"])
    assert (
        "| bulk produce | MB/s | 1,000 | 110 (100 … 120) | 82.5 (75.0 … 90.0) "
        "| 0.75× (0.62 … 0.90) |" in text
    )
    assert "|  | broker CPU s/GB |  | 8.00 (8.00 … 8.00) | 2.00 (2.00 … 2.00) | **0.25×** |" in text
    assert "![ratios.png](ratios.png)" in text


def test_cases_that_we_lose_are_listed(results: Results) -> None:
    text = report.page(results, [])
    assert "| bulk produce 1 KB, acks=1 | ≥ 1.2× | ≥ 2.0× | 0.75× | **missed** |" in text
    assert "| ack latency p50 | ≤ 0.8× | ≤ 0.4× | 0.20× | goal reached |" in text
    assert "| failover after kill -9 | ≤ 0.5× | ≤ 0.2× | not measured |  |" in text


def test_a_goal_of_two_cases_adds_them(results: Results) -> None:
    produced = CaseResult("raw-produce", "produce", [{"name": report.CPU, "better": "less"}])
    produced.samples = {"kafka": [{report.CPU: 3.0}], "odradek": [{report.CPU: 1.0}]}
    results.cases.append(produced)
    label = "| broker CPU per GB produced + consumed | ≤ 0.6× | ≤ 0.3× |"
    assert f"{label} not measured |  |" in report.page(results, [])
    consumed = CaseResult("raw-consume", "consume", [{"name": report.CPU, "better": "less"}])
    consumed.samples = {"kafka": [{report.CPU: 1.0}], "odradek": [{report.CPU: 0.8}]}
    results.cases.append(consumed)
    text = report.page(results, [])
    assert f"{label} 0.45× | reached |" in text
    assert "| – of it consumed | ≤ 0.6× | ≤ 0.3× | 0.80× | **missed** |" in text


def test_failed_and_unavailable_cases_are_named(results: Results) -> None:
    results.cases[1].error = "odradek: the checksum differs"
    results.cases[2].unavailable = {"odradek": "no groups yet"}
    text = report.page(results, [])
    assert "- bulk produce: failed (odradek: the checksum differs)" in text
    assert "- latency: not with odradek (no groups yet)" in text


def test_every_goal_names_a_metric_of_a_case() -> None:
    for goal in report.GOALS:
        for name in goal.case.split("+"):
            found = {metric.name: metric.better for metric in ALL[name].metrics}
            assert found[goal.metric] == goal.better
    assert all(not case.limit or case.limit in ALL for case in ALL.values())


def test_results_are_the_same_after_a_round_trip(results: Results, tmp_path: Path) -> None:
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results


def test_some_cases_measured_again_take_the_place_of_the_older_ones(results: Results) -> None:
    again = CaseResult("latency-1000", "latency", [{"name": "ack p50 ms", "better": "less"}])
    again.samples = {"kafka": [{"ack p50 ms": 0.4}], "odradek": [{"ack p50 ms": 0.3}]}
    again.measured = {"commit": "abc", "load average": 7.5}
    order = ["latency-1000", "limit-write", "produce-1k-acks-1-1p", "failover"]
    results.seconds = 100.0
    newer = Results(seed=1, smoke=False, cases=[again], seconds=20.0)
    both = newer.merged(results, order)
    assert [case.name for case in both.cases] == order[:3]
    assert both.cases[0] is again
    assert both.seconds == 120.0
    text = report.page(both, [])
    assert "| ack latency p50 | ≤ 0.8× | ≤ 0.4× | 0.75× | reached |" in text
    assert "- abc (load average 7.5 to 7.5): latency-1000" in text
    assert "when the cases began, its load average was 0.0 to 7.5" in text
    assert "several runs" not in report.page(results, [])


def test_plots_are_pictures(results: Results, tmp_path: Path) -> None:
    from odradek_bench import plots  # matplotlib would be imported by every test process

    names = plots.draw(results, tmp_path)
    assert names == ["ratios.png", "bulk.png", "latency.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_digits_that_mean_something() -> None:
    assert [number(v) for v in (12345.6, 123.4, 12.34, 1.234)] == ["12,346", "123", "12.3", "1.23"]


def test_rounds_alternate_and_a_wrong_answer_fails_the_case(tmp_path: Path) -> None:
    order: list[str] = []

    def good(_: Bench, engine: str) -> Sample:
        order.append(engine)
        return {"s": 1.0 if engine == "kafka" else 0.5}

    def wrong(_: Bench, engine: str) -> Sample:
        if engine == "odradek":
            raise WrongAnswerError("1 of 10 records is lost")
        return {"s": 1.0}

    def absent(_: Bench, engine: str) -> Sample:
        if engine == "odradek":
            raise UnavailableError("no groups yet")
        return {"s": 1.0}

    cases = [
        Case(name, name, run, (Metric("s", "less"),), rounds=3, servers="own")
        for name, run in (("good", good), ("wrong", wrong), ("absent", absent))
    ]
    results, said = Results(seed=1, smoke=False), list[str]()
    run_cases(Bench(tmp_path), cases, results, say=said.append, deadline_s=60.0)
    assert order == ["kafka", "odradek", "odradek", "kafka", "kafka", "odradek"]
    assert [(case.name, case.wrong) for case in results.failed] == [("wrong", True)]
    assert all(case.measured["began"] for case in results.cases)
    assert line(results.cases[0]).endswith("kafka 1.00  odradek 0.50  s  -> 0.50x (better)")
    assert "FAILED: odradek: 1 of 10 records is lost" in line(results.cases[1])
    assert "odradek: no groups yet" in line(results.cases[2])


def test_a_run_without_time_left_names_the_omitted_cases(tmp_path: Path) -> None:
    case = Case("late", "late", lambda *_: {"s": 1.0}, (Metric("s", "less"),), servers="own")
    results = Results(seed=1, smoke=False)
    run_cases(Bench(tmp_path), [case], results, say=lambda _: None, deadline_s=-1.0)
    assert results.cases[0].skipped
    assert not results.failed
