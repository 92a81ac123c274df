"""docs/reference/broker-settings.md and topic-settings.md, from odradek_broker.model.

Written by `python -m odradek_docs.generate` (`make gen`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from odradek_broker.model.broker_configs import BROKER_CONFIGS_TEXT
from odradek_broker.model.config_docs import documentation
from odradek_broker.model.config_table import (
    BROKER_CONFIGS,
    INT_MAX,
    TOPIC_CONFIGS,
    ConfigKey,
    UpdateMode,
)
from odradek_broker.model.log_config import LONG_MAX
from odradek_docs.crd_reference import HEADER, cell

_UPDATES = {
    UpdateMode.READ_ONLY: "at start",
    UpdateMode.PER_BROKER: "per broker",
    UpdateMode.CLUSTER_WIDE: "per broker or for all",
}
_NO_LIMIT = {str(LONG_MAX): "no limit", str(INT_MAX): "no limit"}
_HOW_TO = "[Configure](../how-to/configure.md) says how to set them."


def pages() -> dict[str, str]:
    """Name of the file to its text."""
    return {"broker-settings.md": _broker_page(), "topic-settings.md": _topic_page()}


def _broker_page() -> str:
    honoured = sum(key.honoured for key in BROKER_CONFIGS.values())
    parts = [
        HEADER.format(title="Broker settings", source="broker/odradek_broker/model"),
        f"The {honoured} settings that the embedded broker honours, under Apache Kafka's names; "
        f"those that begin with `odradek.` are ours. {_HOW_TO} *Changed* says when a new value "
        "can be given: at start only, or while the broker runs (for one broker, or as a default "
        "for all). Internal settings, for tests mostly, are marked.\n\n",
    ]
    for title, names in _sections():
        keys = [BROKER_CONFIGS[name] for name in names if BROKER_CONFIGS[name].honoured]
        if keys:
            parts.append(
                f"## {title}\n\n| setting | type | default | valid | changed | description |\n"
            )
            parts.append("|---|---|---|---|---|---|\n")
            parts += [_row(key, _UPDATES[key.update]) for key in keys]
            parts.append("\n")
    parts.append(_without_effect(BROKER_CONFIGS))
    return "".join(parts)


def _topic_page() -> str:
    parts = [
        HEADER.format(title="Topic settings", source="broker/odradek_broker/model"),
        "Settings of a topic; each can be changed while the topic is in use. Without a value of "
        f"its own a topic has that of the broker setting in the column *default from*. {_HOW_TO}\n",
        "\n| setting | type | default | valid | default from | description |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for key in TOPIC_CONFIGS.values():
        if key.honoured:
            parts.append(_row(key, ", ".join(f"`{name}`" for name in key.synonyms)))
    parts += ["\n", _without_effect(TOPIC_CONFIGS)]
    return "".join(parts)


def _sections() -> Iterator[tuple[str, list[str]]]:
    """The headings of the table and the names below each."""
    title, names = "", list[str]()
    for line in BROKER_CONFIGS_TEXT.splitlines():
        if line.startswith("# "):
            if names:
                yield title, names
            title, names = line[2:], []
        elif line:
            names.append(line.split()[1])
    yield title, names


def _row(key: ConfigKey, last: str) -> str:
    text = documentation(key.name) + (" *Internal.*" if key.internal else "")
    return (
        f"| `{key.name}` | {key.type.name.lower()} | {_default(key)} | {_valid(key)} "
        f"| {last} | {cell(text)} |\n"
    )


def _default(key: ConfigKey) -> str:
    if key.default is None:
        return "none"
    return _NO_LIMIT.get(key.default) or (f"`{key.default}`" if key.default else "empty")


def _valid(key: ConfigKey) -> str:
    """`1..9|-1` as words, see `broker_configs.py`."""
    valid = key.valid.removeprefix("~")
    if valid == "-":
        return ""
    if ".." not in valid:
        return " ".join(f"`{word}`" for word in valid.split("|"))
    bounds, _, other = valid.partition("|")
    low, _, high = bounds.partition("..")
    words = f"{low} to {high}" if low and high else f"≥ {low}" if low else f"≤ {high}"
    return f"{words}, or {other}" if other else words


def _without_effect(configs: Mapping[str, ConfigKey]) -> str:
    names: Iterable[str] = [key.name for key in configs.values() if not key.honoured]
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        "## Known, without effect\n\nApache Kafka has these settings and the embedded broker does "
        "not use them. A broker that is started with a value other than Kafka's default logs a "
        f"warning.\n\n{listed}\n"
    )
