"""Apache Kafka's jars, fetched once from Maven, and its command-line tools.

    kafka_tool("org.apache.kafka.tools.TopicCommand",
               "--bootstrap-server", broker.bootstrap, "--list").stdout

    python -m odradek_testkit.engines.fetch            # only fetches the jars, and archives classes

The jars are the Maven artifacts of kafka-tools/pom.xml. They are copied once per content of that
file into $XDG_CACHE_HOME/odradek/kafka-4.3.1-… (95 jars, 59 MB), and each is checked against its
hash (jars.sha256). ODRADEK_KAFKA_JARS names another directory to use instead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

TOOLS_DIR = Path(__file__).parents[1] / "kafka-tools"

# Small heap, cheapest compiler and collector: a tool lives for a second or two on a shared core.
JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


class ToolsMissingError(Exception):
    """Java or Maven is not installed; the message names the command that installs both."""


def kafka_version() -> str:
    found = re.search(r"<kafka\.version>(.+?)</", (TOOLS_DIR / "pom.xml").read_text())
    assert found, "kafka-tools/pom.xml names no kafka.version"
    return found[1]


def kafka_jars() -> Path:
    """The directory with Apache Kafka's jars; fetched by the first caller of all test workers."""
    if given := os.environ.get("ODRADEK_KAFKA_JARS"):
        return Path(given)
    return _cached_jars(f"kafka-{kafka_version()}", TOOLS_DIR / "pom.xml")


def streams_jars() -> Path:
    """The directory with the jars of Kafka Streams (kafka-tools/streams), as `kafka_jars`."""
    return _cached_jars(f"kafka-streams-{kafka_version()}", TOOLS_DIR / "streams" / "pom.xml")


def _cached_jars(name: str, pom: Path) -> Path:
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ToolsMissingError(
            f"{' and '.join(missing)} not found: "
            "run `apt-get install -y openjdk-17-jdk-headless maven`, or `make setup` as root"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    content = b"".join(path.read_bytes() for path in (pom, pom.with_name("jars.sha256")))
    jars = cache / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"
    if jars.is_dir():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "kafka.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch_jars(jars, pom)
    return jars


def _fetch_jars(target: Path, pom: Path) -> None:
    """Maven copies into a temporary directory, which becomes the target when it is complete."""
    partial = Path(tempfile.mkdtemp(prefix="kafka-partial-", dir=target.parent))
    try:
        command = ["mvn", "-q", "-B", "-f", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        command += [f"-Dkafka.version={kafka_version()}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise ToolsMissingError(
                f"Maven could not fetch Apache Kafka:\n{done.stdout}{done.stderr}"
            )
        _check_jars(partial, pom.with_name("jars.sha256"))
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_jars(directory: Path, hashes: Path) -> None:
    """Every listed jar is there with the listed hash, and no other file."""
    listed = {name: digest for digest, name in map(str.split, hashes.read_text().splitlines())}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }
    if wrong := sorted(name for name, _ in listed.items() ^ found.items()):
        raise ToolsMissingError(f"{wrong[0]} does not match its hash in {hashes}")


def class_archive() -> Path | None:
    """A file for the classes that every tool loads; halves the CPU of a tool's start.

    It is valid for one Java and one set of jars; other Javas ignore it. None: no Java.
    """
    java = shutil.which("java")
    if java is None:
        return None
    real = Path(java).resolve()
    key = hashlib.sha256(f"{real} {real.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    jars = kafka_jars()
    return jars.with_name(f"{jars.name}-{key}.jsa")


def archive_classes(bootstrap: str) -> None:
    """Java writes the archive at the end of a tool that talks to this server."""
    archive = class_archive()
    if archive is None or archive.exists():
        return
    partial = archive.with_suffix(f".{os.getpid()}")
    command = java_command(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", bootstrap, "--create", "--topic", "archive-classes"),
        jvm=(f"-XX:ArchiveClassesAtExit={partial}", *JVM_FLAGS),
    )
    subprocess.run(command, capture_output=True, timeout=120, check=False)
    if partial.exists():
        partial.rename(archive)


def _tool_flags() -> tuple[str, ...]:
    archive = class_archive()
    if archive is None or not archive.exists():
        return JVM_FLAGS
    # Nothing on stdout if Java does not accept the archive.
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", *JVM_FLAGS)


def java_command(main_class: str, *args: str, jvm: Sequence[str] = JVM_FLAGS) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
    return ["java", *jvm, logging, "-cp", f"{kafka_jars()}/*", main_class, *args]


def kafka_tool(
    main_class: str,
    *args: str,
    stdin: str | bytes | None = None,
    timeout_s: float = 60.0,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Apache Kafka's tools to its end; the error of a failure contains its output."""
    done = subprocess.run(
        java_command(main_class, *args, jvm=_tool_flags()),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    # Tools print record values as they are: never fail on bytes that are not UTF-8.
    text = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )  # fmt: skip
    if check and text.returncode != 0:
        raise AssertionError(
            f"{main_class} {' '.join(args)}: exit code {text.returncode}\n"
            f"{text.stdout}{text.stderr}"
        )
    return text
