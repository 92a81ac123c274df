"""The parts without a server: masks, formats, the ring, permissions, filters, the chart."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_console.cluster.cache import Cache
from odradek_console.cluster.history import History
from odradek_console.cluster.permissions import Rules, ask
from odradek_console.records.filtering import Filter, FilterError
from odradek_console.records.masking import HIDDEN_BYTES, Masks
from odradek_console.records.showing import HEX, SHOWN_BYTES, show
from odradek_console.text import duration_text, moment_text, since_text
from odradek_console.web.changes import Change, PendingChanges
from odradek_console.web.charts import line_chart
from odradek_console.web.rendering import own_path
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_protocol.records.records import Record

# -- masks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "value", "masked"),
    [
        ("a", '{"a": 1, "b": 2}', '{"a":"•••","b":2}'),
        ("a.b", '{"a": {"b": [1, 2]}}', '{"a":{"b":"•••"}}'),
        ("a[].b", '{"a": [{"b": 1}, {"c": 2}]}', '{"a":[{"b":"•••"},{"c":2}]}'),
        ("a[]", '{"a": [1, 2]}', '{"a":["•••","•••"]}'),
        ("other:a", '{"a": 1}', '{"a": 1}'),
        ("top*:a", '{"a": 1}', '{"a":"•••"}'),
    ],
)
def test_a_mask_hides_its_field(rule: str, value: str, masked: str) -> None:
    masks = Masks.parse([rule]).for_topic("topic")
    assert masks.apply(value.encode()) == masked.encode()


JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda c: st.lists(c) | st.dictionaries(st.sampled_from("abc"), c),
)


@given(JSON)
def test_no_masked_value_is_left(document: object) -> None:
    masked = Masks.parse(["a", "b.c", "c[].a"]).apply(json.dumps(document).encode())
    assert masked is not None
    found = json.loads(masked)
    if isinstance(found, dict) and "a" in found:
        assert found["a"] == HIDDEN_BYTES.decode()


def test_a_value_that_a_mask_cannot_read_is_hidden() -> None:
    masks = Masks.parse(["a"])
    assert masks.apply(b'{"a": "secret"') == HIDDEN_BYTES
    assert masks.apply(b"[" * 100_000) == HIDDEN_BYTES
    assert masks.apply(None) is None
    twice = masks.apply(b'{"a": "secret", "a": {}}')
    assert twice is not None
    assert b"secret" not in twice


# -- formats ---------------------------------------------------------------------------------------


def test_formats() -> None:
    shown = show(b'{"a": [1, 2]}')
    assert shown is not None
    assert (shown.format, shown.foldable, shown.preview) == ("json", True, '{"a": [1, 2]}')
    for data, kind in (
        (b"text", "text"),
        (b"\xff\x00", "hex"),
        (b"\x00\x01", "hex"),
        (b"12", "text"),
    ):
        found = show(data)
        assert found is not None
        assert found.format == kind
    row = show(bytes(range(20)), HEX)
    assert row is not None
    assert row.text.splitlines()[1] == "00000010  10 11 12 13" + " " * 36 + "  ...."
    assert show(None) is None


@given(st.binary(max_size=200))
def test_every_value_can_be_shown(data: bytes) -> None:
    for wanted in ("auto", "text", "json", "hex"):
        shown = show(data, wanted)
        assert shown is not None
        assert shown.size == len(data)


def test_large_and_deep_values_are_cut() -> None:
    large = show(b"x" * (SHOWN_BYTES + 10))
    assert large is not None
    assert large.cut
    assert len(large.text) == SHOWN_BYTES
    deep = show(b"[" * 500 + b"]" * 500)
    assert deep is not None
    assert not deep.foldable
    wide = show(json.dumps(list(range(5_000))).encode())
    assert wide is not None
    assert not wide.foldable


def test_times_that_no_clock_shows() -> None:
    assert moment_text(-1) == "–"
    assert moment_text(2**62) == str(2**62)
    assert moment_text(1_767_225_600_123) == "2026-01-01 00:00:00.123"
    assert duration_text(604_800_000) == "7 days"


# -- ring, cache, changes --------------------------------------------------------------------------


def test_the_ring_keeps_an_hour_and_forgets_series() -> None:
    history = History(points=3)
    history.add(1, {"a": 1.0})
    history.add(2, {"a": 2.0, "b": 5.0})
    history.add(3, {"b": 6.0})
    history.add(4, {"b": 7.0})
    assert history.series("a") == [(2, 2.0)]
    assert history.series("b") == [(2, 5.0), (3, 6.0), (4, 7.0)]
    assert history.last("a") is None
    history.add(5, {"b": 8.0})
    assert history.names() == ["b"]
    assert not math.isnan(history.last("b") or math.nan)


def test_the_cache_asks_once_until_it_is_too_old() -> None:
    now, asked = [0.0], []
    cache = Cache(lambda: now[0])

    def ask_cluster() -> int:
        asked.append(1)
        return len(asked)

    assert [cache.get("k", 5, ask_cluster) for _ in range(3)] == [1, 1, 1]
    now[0] = 6.0
    assert cache.get("k", 5, ask_cluster) == 2
    cache.forget()
    assert cache.get("k", 5, ask_cluster) == 3


def test_a_change_can_be_made_once_and_for_ten_minutes() -> None:
    now = [0.0]
    pending = PendingChanges(lambda: now[0])
    change = Change("a", "s", "t", (), lambda _: None)
    first = pending.add(change)
    assert pending.take(first) is change
    assert pending.take(first) is None
    second = pending.add(change)
    now[0] = 601.0
    assert pending.get(second) is None


@pytest.mark.parametrize("path", ["//a", "https://a", "/\\a", "a", "/a\nb", ""])
def test_only_paths_of_ours(path: str) -> None:
    assert own_path(path) == "/"


def test_names_in_a_chart_are_escaped() -> None:
    assert "<b>" not in line_chart("<b>", [("<b>", [(0, 1.0), (1, 2.0)])], 10)


# -- permissions -----------------------------------------------------------------------------------


def test_the_rule_that_decides() -> None:
    def entry(operation: AclOperation, permission: AclPermission, name: str = "orders",
              pattern: PatternType = PatternType.LITERAL) -> AclEntry:  # fmt: skip
        return AclEntry(AclResource.TOPIC, name, pattern, "User:alice", "*", operation, permission)

    orders = (AclResource.TOPIC, "orders")
    rules = Rules(frozenset({"User:root"}), False)
    allow = entry(AclOperation.WRITE, AclPermission.ALLOW, "ord", PatternType.PREFIXED)
    verdict = ask([allow], rules, "User:alice", AclOperation.WRITE, orders)
    assert verdict.allowed
    assert "resourceName=ord" in verdict.why
    deny = entry(AclOperation.ALL, AclPermission.DENY)
    verdict = ask([allow, deny], rules, "User:alice", AclOperation.WRITE, orders)
    assert not verdict.allowed
    assert "DENY" in verdict.why
    assert ask([allow], rules, "User:alice", AclOperation.DESCRIBE, orders).allowed
    assert not ask([allow], rules, "User:bob", AclOperation.READ, orders).allowed
    assert "super.users" in ask([], rules, "User:root", AclOperation.READ, orders).why
    unsure = ask([], Rules(None, None), "User:bob", AclOperation.READ, orders)
    assert "not visible to you" in unsure.why
    with pytest.raises(ValueError, match="TYPE:NAME"):
        ask([], rules, "alice", AclOperation.READ, orders)


# -- filters ---------------------------------------------------------------------------------------


def records(*values: bytes | None) -> list[Record]:
    return [Record(i, 1_000 * i, b"key", value, [(b"h", b"x")]) for i, value in enumerate(values)]


def test_a_filter_sees_documents_text_and_headers() -> None:
    given_ = records(b'{"a": {"b": 3}}', b"plain", None, b'{"a": {"b": 4.5}}')
    for expression, wanted in (
        ("value.a.b > 3.5", [3]),
        ('text.contains("lai")', [1]),
        ("tombstone", [2]),
        ('headers["h"] == "x" && offset >= 2', [2, 3]),
        ('timestamp > timestamp("1970-01-01T00:00:02.5Z")', [3]),
        ("has(value.a)", [0, 3]),
        ("size", []),  # not a bool
    ):
        with Filter(expression) as one:
            assert one.match(0, given_).indexes == wanted, expression


@pytest.mark.parametrize("expression", ["value ==", "unknown > 1", "x" * 3_000, "import os", ""])
def test_filters_that_are_refused(expression: str) -> None:
    with pytest.raises(FilterError):
        Filter(expression)


def test_a_filter_that_takes_for_ever_is_ended() -> None:
    """Nested lists: 10^8 steps for a record. It runs in a process, which is killed."""
    nested = "true"
    for name in "abcdefgh":
        nested = f"[0,1,2,3,4,5,6,7,8,9].all({name}, {nested})"
    began = time.monotonic()
    with (
        pytest.raises(FilterError, match="make it simpler"),
        Filter(f"offset == 0 || {nested}", batch_s=1.0) as endless,
    ):
        endless.match(0, records(b"x", b"x"))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("passed_s", "words"),
    [(0, "0 seconds"), (1, "1 second"), (59, "59 seconds"), (60, "1 minute"), (7_199, "1 hour"),
     (200_000, "2 days"), (-5, "0 seconds")],
)  # fmt: skip
def test_since_when(passed_s: int, words: str) -> None:
    at_ms = 1_769_860_800_000  # 2026-01-31T12:00:00Z
    said = since_text("2026-01-31T12:00:00Z", at_ms + passed_s * 1_000)
    assert said == f"2026-01-31 12:00:00, for {words}"
    assert since_text("", at_ms) == "–"
    assert since_text("soon", at_ms) == "soon"
