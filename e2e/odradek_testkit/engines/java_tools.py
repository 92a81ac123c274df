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
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from odradek_testkit.caching import cache_home
from odradek_testkit.engines.tool_server import ToolServer, compiled

TOOLS_DIR = Path(__file__).parents[1] / "kafka-tools"

# Small heap, cheapest compiler and collector: a tool lives for a second or two on a shared core.
JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")

# Programs of ours with Apache Kafka's clients.
PROGRAMS = ("server/ToolServer.java", "server/LeavesAThread.java", "share/ShareMember.java")
CLIENTS, SERVER = "clients", "server"  # the programs that have an archive of classes


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
    return cached_jars(f"kafka-{kafka_version()}", TOOLS_DIR / "pom.xml")


def streams_jars() -> Path:
    """The directory with the jars of Kafka Streams (kafka-tools/streams), as `kafka_jars`."""
    return cached_jars(f"kafka-streams-{kafka_version()}", TOOLS_DIR / "streams" / "pom.xml")


def cached_jars(name: str, pom: Path) -> Path:
    """The directory with the jars of `pom`, each as jars.sha256 next to it says."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ToolsMissingError(
            f"{' and '.join(missing)} not found: "
            "run `apt-get install -y openjdk-17-jdk-headless maven`, or `make setup` as root"
        )
    cache = cache_home()
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


def class_archive(of: str) -> Path | None:
    """A file for the classes that each JVM of CLIENTS or SERVER loads; halves the CPU of its start.

    It is valid for one Java and one class path; other Javas ignore it. None: no Java.
    """
    java = shutil.which("java")
    if java is None:
        return None
    real = Path(java).resolve()
    key = hashlib.sha256(f"{real} {real.stat().st_mtime_ns}".encode())
    for source in PROGRAMS:
        key.update((TOOLS_DIR / source).read_bytes())
    jars = kafka_jars()
    return jars.with_name(f"{jars.name}-{key.hexdigest()[:8]}-{of}.jsa")


def archive_flags(of: str) -> tuple[str, ...]:
    """Flags of a JVM whose class path begins with the jars; none if the archive is not there."""
    archive = class_archive(of)
    if archive is None or not archive.exists():
        return ()
    # Nothing on stdout if Java does not accept the archive.
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable")


def java_command(
    main_class: str,
    *args: str,
    jvm: Sequence[str] = JVM_FLAGS,
    more_classes: Sequence[Path] = (),
) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
    path = ":".join([f"{kafka_jars()}/*", *map(str, more_classes)])
    return ["java", *jvm, logging, "-cp", path, main_class, *args]


def kafka_tool(
    main_class: str,
    *args: str,
    stdin: str | bytes | None = None,
    timeout_s: float = 60.0,
    check: bool = True,
    own_jvm: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Apache Kafka's tools to its end; the error of a failure contains its output.

    Tools share a JVM, one after the other, unless `own_jvm` is set or there is no Java compiler.
    """
    given = stdin.encode() if isinstance(stdin, str) else stdin
    server = None if own_jvm else _tool_server()
    done = server.run((main_class, *args), given or b"", timeout_s) if server else None
    if done is None:
        done = subprocess.run(
            tool_command(main_class, *args),
            input=given,
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


def tool_command(main_class: str, *args: str, archive: Sequence[str] | None = None) -> list[str]:
    """A tool, or a program of kafka-tools, in a JVM; `archive` instead of `archive_flags`."""
    flags = archive_flags(CLIENTS) if archive is None else archive
    own = compiled("programs", [TOOLS_DIR / path for path in PROGRAMS], kafka_jars())
    # The archive of classes is valid for a class path that begins with that of its making.
    return java_command(
        main_class, *args, jvm=(*flags, *JVM_FLAGS), more_classes=(own,) if own else ()
    )


@functools.cache
def _tool_server() -> ToolServer | None:
    """The server of this process; None without a Java compiler."""
    return ToolServer(tool_command("ToolServer")) if shutil.which("javac") else None
