"""odradek_testkit.slowest_first: which file a process of a parallel run gets next."""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odradek_testkit.slowest_first import CACHE_KEY, GUESS_S, SlowestFirst, guess_s


class Process:
    """A test process as the scheduler sees it: it gets numbers of tests and runs them in order."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="")
        self.shutting_down = False
        self.queue: list[int] = []

    def send_runtest_some(self, numbers: Sequence[int]) -> None:
        self.queue += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


Started = list[tuple[float, int, str]]


def run(processes: int, files: Mapping[str, float], tests: int = 3) -> Started:
    """(second of its start, process, file) of each test, which takes its share of its file's."""
    names = [f"{file}::test_{n}" for file in sorted(files) for n in range(tests)]
    options = SimpleNamespace(tx=[f"{processes}*popen"], loadscopereorder=False)
    config = SimpleNamespace(
        option=options, getvalue=lambda name: getattr(options, name), hook=SimpleNamespace()
    )
    scheduler = SlowestFirst(config, None, files)
    nodes: list[Any] = [Process() for _ in range(processes)]
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, names)
    scheduler.schedule()

    started: Started = []
    ends = [(0.0, n, -1) for n in range(processes)]  # (second, process, test that ended)
    while ends:
        now, n, ended = heapq.heappop(ends)
        if ended >= 0:
            scheduler.mark_test_complete(nodes[n], ended)
        if nodes[n].queue:
            test = nodes[n].queue.pop(0)
            file = names[test].split("::")[0]
            started.append((now, n, file))
            heapq.heappush(ends, (now + files[file] / tests, n, test))
    assert len(started) == len(names)
    return started


def processes_of(kind: str, started: Started) -> set[int]:
    return {process for _, process, file in started if kind in file}


def test_the_slowest_files_begin_first_and_stay_together() -> None:
    files = {f"test_{n}.py": float(n) for n in range(1, 9)}
    started = run(1, files)
    assert [file for _, _, file in started[::3]] == [f"test_{n}.py" for n in range(8, 0, -1)]


def test_processes_end_together() -> None:
    """Of 60 s, two processes have 30 s each, and the last file to begin is a short one."""
    files = {"test_z.py": 20.0, **{f"test_{n}.py": 2.0 for n in range(20)}}
    began, _, file = max(run(2, files))
    assert file != "test_z.py"
    assert began + files[file] / 3 <= 31


def test_files_that_share_a_jvm_go_to_few_processes() -> None:
    spark = {f"spark-on-k8s/test_{n}.py": 30.0 for n in range(6)}
    tools = {f"broker/test_java_{n}.py": 20.0 for n in range(6)}
    started = run(6, {**spark, **tools, **{f"test_{n}.py": 10.0 for n in range(60)}})
    assert len(processes_of("spark", started)) == 2
    assert len(processes_of("java", started)) == 2


def test_one_process_computes_while_the_others_wait_for_brokers() -> None:
    clusters = {f"broker/broker_tests/cluster/test_{n}.py": 30.0 for n in range(8)}
    started = run(3, {**clusters, **{f"test_{n}.py": 5.0 for n in range(20)}})
    assert len(processes_of("cluster", started)) == 2
    (first, *_) = [file for at, _, file in started if at == 0]
    assert first not in clusters


def test_no_process_waits_for_others_that_have_the_jvm() -> None:
    spark = {f"spark-on-k8s/test_{n}.py": 30.0 for n in range(6)}
    assert len(processes_of("spark", run(6, spark))) == 6


def test_without_times_the_directory_counts() -> None:
    assert guess_s("spark-on-k8s/spark_tests/test_x.py") > guess_s("cli/cli_tests/test_x.py")
    assert guess_s("docs/docs_tests/test_x.py") == GUESS_S


def test_the_second_run_begins_with_what_was_slow_in_the_first(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test(): pass")
    (tmp_path / "test_b.py").write_text("import time\ndef test(): time.sleep(0.2)")
    (tmp_path / "test_c.py").write_text("def test(): pass")

    def files() -> list[str]:
        command = [sys.executable, "-m", "pytest", "-v", "-p", "odradek_testkit.pytest_plugin"]
        command += ["--dist=loadfile", "-n1", f"--rootdir={tmp_path}", str(tmp_path)]
        env = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "PASSED" in line]
        return [line.split()[-1].split("::")[0] for line in lines]

    def recorded() -> dict[str, float]:
        text = (tmp_path / ".pytest_cache" / "v" / CACHE_KEY).read_text()
        seconds: dict[str, float] = json.loads(text)
        return seconds

    assert files() == ["test_a.py", "test_b.py", "test_c.py"]
    first = recorded()
    assert max(first, key=first.__getitem__) == "test_b.py"
    (tmp_path / "test_c.py").unlink()
    assert files() == ["test_b.py", "test_a.py"]
    assert recorded()["test_c.py"] == first["test_c.py"]
