"""The images: which of our packages, on top of which requirements, and what they run.

All are Debian 12 with its Python 3.11, some with its Java 17, and /opt/odradek. They run as user
10001 and need no file of their own to be written: the root file system is read-only, /tmp and the
data are volumes.

A further image is a further entry of IMAGES and a stage of the Dockerfile.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = "/opt/odradek"  # on PYTHONPATH: our packages and their requirements
USER_ID = 10001
PYTHON = "3.11"
SUITE = "bookworm"
LOCK = ROOT / "requirements.lock"

# Debian packages of the base; images with the same base share its layer.
BASES = {
    "python": ("python3", "ca-certificates"),
    "java": ("python3", "ca-certificates", "openjdk-17-jre-headless"),
}

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONPATH": HOME,
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",  # all of it is compiled already, and nothing can be written
}


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


@dataclass(frozen=True)
class Image:
    """The content and the command of an image."""

    name: str
    source: Path  # of the package
    module: str  # that runs
    requirements: tuple[str, ...]  # what the package imports; their dependencies are added
    also: tuple[Path, ...] = ()  # further packages of ours that it imports
    absent: tuple[str, ...] = ()  # packages of ours that only commands without use here import
    base: str = "python"
    locks: tuple[Path, ...] = (LOCK,)  # where the requirements are pinned
    tag: Callable[[], str] = version
    jars: Callable[[], Path] | None = None  # a directory that becomes /opt/odradek/jars
    files: tuple[Path, ...] = ()  # files from elsewhere that go into the package's directory
    compiler: Path | None = None  # a program that compiles the package and prints the directory
    from_source: tuple[str, ...] = ()  # requirements that are not published as wheels
    # paths below /opt/odradek, of the requirements, that are left out
    left_out: tuple[str, ...] = ()
    work_dir: str = "/"
    user_name: str = ""  # in /etc/passwd, for programs that ask who they are
    description: str = ""
    arguments: tuple[str, ...] = ()  # default arguments, used by `docker run` without any
    data: str = ""  # a directory of the user, and a volume if none is mounted there
    ports: tuple[int, ...] = ()

    @property
    def package(self) -> str:
        return self.source.name

    @property
    def packages(self) -> tuple[Path, ...]:
        return (self.source, *self.also)

    @property
    def repository(self) -> str:
        return f"odradek/{self.name}"

    @property
    def entrypoint(self) -> list[str]:
        return ["python3", "-m", self.module]

    @property
    def labels(self) -> dict[str, str]:
        """OCI's labels of an image."""
        return {
            "org.opencontainers.image.title": self.repository,
            "org.opencontainers.image.description": self.description,
            "org.opencontainers.image.version": self.tag(),
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.vendor": "Odradek",
        }


def kafka_jars() -> Path:
    """Apache Kafka's, fetched once from the Maven artifacts."""
    from odradek_testkit import engines  # late: the Dockerfile's stages have only this package

    return engines.kafka_jars()


def kafka_version() -> str:
    from odradek_testkit import engines

    return engines.kafka_version()


def spark_jars() -> Path:
    """The Kafka connector, which pyspark does not bring."""
    from odradek_spark.session.jars import jars

    return jars()[0].parent


BROKER = Image(
    "broker",
    ROOT / "broker" / "odradek_broker",
    "odradek_broker.main",
    (
        "aiohttp",
        "cramjam",
        "crc32c",
        "cryptography",
        "google-re2",
        "kio",
        "librt",
        "prometheus-client",
        "pyjwt",
    ),
    also=(ROOT / "broker" / "odradek_protocol",),
    compiler=ROOT / "broker" / "compile.py",
    description="A Kafka broker",
    files=(ROOT / "images" / "server.properties",),
    arguments=("--config", f"{HOME}/odradek_broker/server.properties"),
    data="/var/lib/odradek",
    ports=(9092,),
)
OPERATOR = Image(
    "operator",
    ROOT / "operator" / "odradek_operator",
    "odradek_operator.main",
    (
        "aiohttp", "cramjam", "crc32c", "cronsim", "cryptography", "httpx2", "kio", "kopf",
        "librt", "lightkube", "msgspec", "numpy", "prometheus-client", "pyyaml",
    ),
    also=(ROOT / "operator" / "odradek_api", ROOT / "broker" / "odradek_protocol"),
    description="The operator that runs Kafka clusters on Kubernetes",
)  # fmt: skip
APACHE = Image(
    "apache",
    ROOT / "images" / "odradek_apache",
    "odradek_apache.main",
    (),
    base="java",
    tag=kafka_version,
    jars=kafka_jars,
    description="Apache Kafka for engine: apache",
    files=(ROOT / "operator" / "odradek_operator" / "kafka" / "apache-metrics.yaml",),
)
SPARK = Image(
    "spark",
    ROOT / "spark-on-k8s" / "odradek_spark",
    "odradek_spark.entrypoint",
    (
        "confluent-kafka",
        "cronsim",
        "fastavro",
        "grpcio-tools",
        "jsonschema",
        "msgspec",
        "protobuf",
        "py4j",
        "pyarrow",
        "pyspark",
        "pyyaml",
        "referencing",
        "zstandard",  # of Spark Connect, which declarative pipelines use
    ),
    also=(ROOT / "operator" / "odradek_api", ROOT / "broker" / "odradek_schemas"),
    base="java",
    locks=(LOCK, ROOT / "spark-on-k8s" / "requirements.lock"),
    jars=spark_jars,
    description="Spark pipelines: drivers and executors",
    from_source=("pyspark",),
    left_out=("pyspark/data", "pyspark/examples", "pyspark/jars/connect-repl"),
    work_dir="/tmp",  # where executors put the files of a job; a volume
    user_name="spark",  # Hadoop cannot open files as a user without a name
)
CONSOLE = Image(
    "console",
    ROOT / "cli" / "odradek_cli",
    "odradek_cli",
    (
        "aiohttp", "common-expression-language", "confluent-kafka", "cramjam", "crc32c",
        "cronsim", "cryptography", "fastavro", "google-re2", "grpcio-tools", "httpx2", "jinja2",
        "jsonschema", "kio", "kopf", "librt", "lightkube", "markupsafe", "msgspec", "numpy",
        "prometheus-client", "protobuf", "psutil", "pyjwt", "pyyaml", "referencing", "rich",
        "typer",
    ),
    also=(
        ROOT / "cli" / "odradek_console",
        ROOT / "operator" / "odradek_operator",
        ROOT / "operator" / "odradek_api",
        ROOT / "broker" / "odradek_broker",
        ROOT / "broker" / "odradek_protocol",
        ROOT / "broker" / "odradek_schemas",
    ),
    absent=("odradek_spark",),
    description="The web console, and the odradek command",
    arguments=("console", "--help"),
)  # fmt: skip
IMAGES = {image.name: image for image in (BROKER, OPERATOR, APACHE, SPARK, CONSOLE)}
