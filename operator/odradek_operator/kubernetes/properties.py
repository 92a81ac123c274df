"""A broker's properties file: its settings, then settings that are derived from them.

    node.id=0
    listeners=PLAINTEXT://:9092,EXTERNAL://:9094
    # from here on: what follows from the settings above
    inter.broker.listener.name=PLAINTEXT

Only the first part is read back: the plan compares it with the desired settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from odradek_operator.kafka.apache import CLUSTER_ID, FORMAT
from odradek_operator.kafka.links import PROTOCOL_MAP

# Part of the files of running pods: another text would be read as a changed setting.
FOLLOWS = "# from here on: what follows from the settings above"
_ESCAPED = re.compile(r"\\(.)")
ENV_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def properties_text(settings: Mapping[str, str]) -> str:
    """In Kafka's format, one line per value, without the @-settings."""
    follows = _follows(settings)
    own = {name: value for name, value in settings.items() if not name.startswith("@")}
    return _lines(own) + (f"{FOLLOWS}\n{_lines(follows)}" if follows else "")


def read_properties(text: str) -> dict[str, str]:
    """The settings of a file that `properties_text` wrote."""
    own = text.partition(FOLLOWS)[0]
    pairs = (line.partition("=") for line in own.splitlines() if line)
    return {name: _ESCAPED.sub(_plain, value) for name, _, value in pairs}


def voters_of(text: str) -> str:
    """Engine apache: "0@host:9093:id,…" of a file for a broker that votes; else empty."""
    found = re.search(r"^odradek\.storage\.format=--initial-controllers (\S+)$", text, re.M)
    return found[1] if found else ""


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(
        "{}={}\n".format(name, value.replace("\\", "\\\\").replace("\n", "\\n"))
        for name, value in sorted(settings.items())
    )


def _follows(settings: Mapping[str, str]) -> dict[str, str]:
    made = {}
    if FORMAT in settings:  # for the launcher in the Apache Kafka image, which formats the disk
        made["odradek.cluster.id"] = settings[CLUSTER_ID]
        made["odradek.storage.format"] = settings[FORMAT]
    elif "EXTERNAL://" in settings.get("listeners", "") and PROTOCOL_MAP not in settings:
        made["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"
        made["inter.broker.listener.name"] = "PLAINTEXT"
    if "${env:" in settings.get("advertised.listeners", ""):
        others = [p for p in settings.get("config.providers", "").split(",") if p and p != "env"]
        made["config.providers"] = ",".join([*others, "env"])
        made["config.providers.env.class"] = ENV_PROVIDER
    return made
