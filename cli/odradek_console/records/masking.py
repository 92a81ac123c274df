"""Fields of JSON values that nobody sees in this console: for shared screens.

    masks = Masks.parse(["card.number", "payments:customer.email", "items[].secret"])
    masks.apply("payments", b'{"card": {"number": "4111"}}')    # b'{"card": {"number": "•••"}}'

A rule without a topic is for all topics; a rule may name topics that begin with a prefix
(`pay*:email`). `[]` stands for each element of an array. The value is masked before it is
filtered, shown or exported, so that a filter cannot find out what a mask hides. A value that a rule
is for and that is no JSON document is hidden as a whole: nobody knows where the field is in it.
Keys and headers are not masked. Masks hide fields in this console only: whoever may read the topic
can use another client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

HIDDEN = "•••"
HIDDEN_BYTES = HIDDEN.encode()


class MaskError(Exception):
    """A rule that cannot be read; the text says why."""


@dataclass(frozen=True)
class Mask:
    topic: str | None  # None: all; a name that ends in * is a prefix
    path: tuple[str, ...]  # "[]" is every element of an array

    def is_for(self, topic: str) -> bool:
        if self.topic is None or self.topic == topic:
            return True
        return self.topic.endswith("*") and topic.startswith(self.topic[:-1])


@dataclass(frozen=True)
class Masks:
    rules: tuple[Mask, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Masks:
        return cls(tuple(_parse(text) for text in texts))

    def for_topic(self, topic: str) -> Masks:
        return Masks(tuple(rule for rule in self.rules if rule.is_for(topic)))

    def apply(self, value: bytes | None) -> bytes | None:
        """The rules must be those `for_topic`. The document is always written anew: of a field that
        comes twice, a parser sees only one."""
        if not self.rules or value is None:
            return value
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return HIDDEN_BYTES
        for rule in self.rules:
            _mask(document, rule.path)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _parse(text: str) -> Mask:
    topic, colon, path = text.rpartition(":")
    parts = tuple(part for step in path.split(".") for part in _steps(step))
    if not parts or not all(parts) or (colon and not topic):
        raise MaskError(f"mask {text}: expected a.b or topic:a.b, for example orders:card.number")
    return Mask(topic or None, parts)


def _steps(step: str) -> list[str]:
    name = step.removesuffix("[]")
    return [name, "[]"] if name != step else [step]


def _mask(node: Any, path: tuple[str, ...]) -> None:
    """Hides in place."""
    step, rest = path[0], path[1:]
    if step == "[]":
        if isinstance(node, list):
            if rest:
                for child in node:
                    _mask(child, rest)
            else:
                node[:] = [HIDDEN] * len(node)
    elif isinstance(node, dict) and step in node:
        if rest:
            _mask(node[step], rest)
        else:
            node[step] = HIDDEN
