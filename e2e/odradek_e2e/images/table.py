"""The images: which of our packages, on top of which requirements, and what they run.

Both are Debian 12 with its Python 3.11 and /opt/odradek, run as user 10001 and need no file of
their own to be written: the root file system is read-only, /tmp and the data are volumes.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOME = "/opt/odradek"  # on PYTHONPATH: our packages and their requirements
USER_ID = 10001
PYTHON = "3.11"
SUITE = "bookworm"

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONPATH": HOME,
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",  # all of it is compiled already, and nothing can be written
}


@dataclass(frozen=True)
class Image:
    name: str
    source: Path  # of the package
    module: str  # that runs
    requirements: tuple[str, ...]  # what the package imports; what these need comes along

    @property
    def package(self) -> str:
        return self.source.name

    @property
    def repository(self) -> str:
        return f"odradek/{self.name}"

    @property
    def entrypoint(self) -> list[str]:
        return ["python3", "-m", self.module]


BROKER = Image(
    "broker",
    ROOT / "broker" / "odradek_broker",
    "odradek_broker.main",
    ("aiohttp", "cramjam", "crc32c", "kio", "prometheus-client", "uvloop"),
)
OPERATOR = Image(
    "operator",
    ROOT / "operator" / "odradek_operator",
    "odradek_operator.main",
    (
        "aiohttp", "httpx2", "kafka-python", "kopf", "lightkube", "msgspec", "prometheus-client",
        "pyyaml",
    ),
)  # fmt: skip
IMAGES = {image.name: image for image in (BROKER, OPERATOR)}


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])
