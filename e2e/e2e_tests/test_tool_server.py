"""Apache Kafka's tools in a shared JVM: they answer as in one of their own."""

import shutil
import subprocess
import threading

import pytest

from odradek_testkit.engines import kafka_tool, tool_command
from odradek_testkit.engines.java_tools import CLIENTS, class_archive
from odradek_testkit.engines.tool_server import ToolServerError

TOOLS = "org.apache.kafka.tools"
pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("javac") is None, reason="without javac no JVM is shared"),
]


@pytest.mark.parametrize(
    "words",
    [
        (f"{TOOLS}.TopicCommand", "--version"),
        (f"{TOOLS}.TopicCommand", "--list"),
        (f"{TOOLS}.GetOffsetShell", "--bootstrap-server", "not a server"),
        (f"{TOOLS}.DumpLogSegments", "--files", "/no/such/file.log"),
        ("no.such.Tool",),
    ],
)
def test_output_and_exit_code_are_those_of_a_jvm_of_its_own(words: tuple[str, ...]) -> None:
    alone = kafka_tool(*words, check=False, own_jvm=True)
    shared = kafka_tool(*words, check=False)
    again = kafka_tool(*words, check=False)
    assert shared.returncode == again.returncode == alone.returncode
    assert shared.stdout == again.stdout == alone.stdout
    assert bool(shared.stderr) == bool(again.stderr) == bool(alone.stderr)


def test_a_tool_that_ends_the_jvm_is_named_and_the_next_one_runs() -> None:
    with pytest.raises(ToolServerError, match=r"VerifiableProducer ended the JVM .*own_jvm=True"):
        kafka_tool(f"{TOOLS}.VerifiableProducer")  # without arguments: System.exit(0)
    assert kafka_tool(f"{TOOLS}.TopicCommand", "--version").returncode == 0


def test_threads_of_an_earlier_tool_print_nothing() -> None:
    """1. A tool leaves a thread that prints every 5 ms; 2. of the next tools' output nothing is
    from it: in a JVM of its own it would have ended."""
    kafka_tool("LeavesAThread")
    for _ in range(3):
        listed = kafka_tool(
            f"{TOOLS}.GetOffsetShell", "--bootstrap-server", "not a server", check=False
        )
        assert listed.stderr
        assert "a thread that is left" not in listed.stdout + listed.stderr


def test_classes_come_from_the_archive_if_there_is_one() -> None:
    """`make tools` makes it; with another class path Java would ignore it without a word."""
    words = tool_command(f"{TOOLS}.TopicCommand", "--version")
    archive = class_archive(CLIENTS)
    assert archive is not None
    shown = subprocess.run(
        [words[0], "-Xlog:class+load", *(one for one in words[1:] if one != "-Xlog:disable")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ("shared objects file (top)" in shown) == archive.exists()


def test_calls_at_the_same_time_do_not_wait_for_each_other() -> None:
    """A tool that waits for records must not keep the others from writing them."""
    results = []

    def call() -> None:
        results.append(kafka_tool(f"{TOOLS}.TopicCommand", "--version").stdout)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(set(results)) == 1
