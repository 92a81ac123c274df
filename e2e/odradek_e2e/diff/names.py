"""Names for things that have different ids in the two engines: topics, members, producers.

A request holds a `Ref("topic_id 3")`; each engine's own value goes into its frame. In answers the
values are replaced by names, so that ids are compared rather than ignored: an engine that answers
with the id of another topic is found.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from odradek_protocol.messages.struct import Struct

# Fields whose values an engine generates; two answers to one request give them a common name.
LEARNED = frozenset(("topic_id", "member_id", "producer_id", "session_id", "token_id"))
NOTHING = (None, "", -1)


class Ref(NamedTuple):
    """Stands for an id that each engine assigns itself; resolved by `Names`."""

    name: str


@dataclass
class Names:
    """One engine's values by name, and back."""

    values: dict[str, Any] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)

    def knows(self, field: str, value: Any) -> bool:
        return _key(field, value) in self.names

    def learn(self, name: str, value: Any) -> None:
        self.values[name] = value
        self.names[_key(name.partition(" ")[0], value)] = name
        if isinstance(value, UUID):  # as Kafka writes it in messages
            text = base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
            self.names[text] = name

    def resolve(self, value: Any) -> Any:
        """A request with this engine's values in place of the names."""
        if isinstance(value, Ref):
            return self.values[value.name]
        if isinstance(value, Struct):
            return Struct(**{name: self.resolve(one) for name, one in vars(value).items()})
        if isinstance(value, list):
            return [self.resolve(one) for one in value]
        return value

    def name_of(self, value: Any, field: str) -> Any:
        """The name of a value that is an id, else the value; ids inside strings are replaced."""
        if isinstance(value, (UUID, int)):
            return self.names.get(_key(field, value), value)
        if isinstance(value, str):
            if value in self.names:
                return f"<{self.names[value]}>"
            for known, name in self.names.items():
                if isinstance(known, str) and len(known) > 8 and known in value:
                    value = value.replace(known, f"<{name}>")
        return value


def _key(field: str, value: Any) -> Any:
    """Numbers are ids only in certain fields: 1 may be a producer id or anything else."""
    return (field, int(value)) if isinstance(value, int) else value


def learn_from(mine: Any, theirs: Any, ours: Names, apache: Names, found: dict[str, int]) -> None:
    """Walks two answers of the same shape and names ids that are not known yet."""
    if isinstance(mine, Struct) and isinstance(theirs, Struct):
        if getattr(mine, "name", None) != getattr(theirs, "name", None):
            return  # lists in another order
        for name, value in vars(mine).items():
            other = getattr(theirs, name, None)
            if name not in LEARNED:
                learn_from(value, other, ours, apache, found)
            elif value not in NOTHING and other not in NOTHING:
                _learn(name, (value, other), (ours, apache), found)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for one, other in zip(_ordered(mine), _ordered(theirs), strict=True):
            learn_from(one, other, ours, apache, found)


def _ordered(items: list[Any]) -> list[Any]:
    """Sorted by name where there is one; members and transactions in order of creation."""
    return sorted(items, key=lambda item: str(getattr(item, "name", "") or ""))


def _learn(
    field: str, values: tuple[Any, Any], engines: tuple[Names, Names], found: dict[str, int]
) -> None:
    if any(engine.knows(field, value) for engine, value in zip(engines, values, strict=True)):
        return
    found[field] = found.get(field, 0) + 1
    for engine, value in zip(engines, values, strict=True):
        engine.learn(f"{field} {found[field]}", value)
