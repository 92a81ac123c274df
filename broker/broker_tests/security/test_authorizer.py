"""Decisions of the authorizer, against a model that looks at every ACL, and what they cost."""

import logging
from collections.abc import Iterable, Iterator
from itertools import count
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.security.support import (
    HOSTS,
    NAMES,
    OPERATIONS,
    acls,
    allow,
    deny,
    naive,
)
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from odradek_broker.model.acl import Acl
from odradek_broker.model.principal import ANONYMOUS, Principal
from odradek_broker.security.authorizer import (
    DENIALS_LOGGED_MAX,
    NAMES_MAX,
    Authorizer,
    Client,
    RequestLog,
)
from odradek_broker.security.resource_types import any_resource_allowed
from odradek_protocol.acl_codes import AclOperation, AclResource

TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALICE = Client(Principal("User", "alice"), HOSTS[0])
_ids = count(1)


def changed(
    before: MetadataImage, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()
) -> MetadataDelta:
    delta = MetadataDelta(before)
    for acl in remove:
        delta.replay(RemoveAccessControlEntryRecord(before.acl_ids[acl]))
    for acl in add:
        delta.replay(AccessControlEntryRecord(UUID(int=next(_ids)), *acl))
    delta.finish(before.offset + 1)
    delta.after.validate()
    return delta


def with_acls(*entries: Acl, **options: bool) -> Authorizer:
    authorizer = Authorizer(["User:root"], allow_if_no_acl_found=options.get("default", False))
    authorizer.apply(changed(EMPTY_IMAGE, dict.fromkeys(entries)))
    return authorizer


def allows(authorizer: Authorizer, client: Client, operation: AclOperation, name: str) -> bool:
    return authorizer.decisions(client, operation, TOPIC).about(name).allowed


@given(
    st.lists(acls(), max_size=12),
    st.sampled_from(["alice", "bob", "carol"]),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([*NAMES, "abcd", "c"]),
    st.booleans(),
)
def test_decides_as_the_model(
    entries: list[Acl], user: str, host: str, operation: AclOperation, name: str, default: bool
) -> None:
    authorizer = with_acls(*entries, default=default)
    client = Client(Principal("User", user), host)
    expected = naive(entries, f"User:{user}", host, operation, TOPIC, name, default=default)
    assert allows(authorizer, client, operation, name) is expected
    assert allows(authorizer, client, operation, name) is expected  # remembered


def after_each(steps: Iterable[tuple[bool, Acl]]) -> Iterator[tuple[Authorizer, set[Acl]]]:
    """An authorizer after each ACL that is added (True) or removed, and the ACLs that it has."""
    authorizer, image = Authorizer(), EMPTY_IMAGE
    entries: set[Acl] = set()
    for add, acl in steps:
        if add is (acl in entries):
            continue
        delta = changed(image, add=[acl]) if add else changed(image, remove=[acl])
        image = delta.after
        entries ^= {acl}
        authorizer.apply(delta)
        yield authorizer, entries


@given(st.lists(st.tuples(st.booleans(), acls()), max_size=30), st.sampled_from(NAMES))
def test_remembers_nothing_across_a_change(steps: list[tuple[bool, Acl]], name: str) -> None:
    """The planted bug: a cached decision that is used after the ACLs have changed."""
    for authorizer, entries in after_each(steps):
        for operation in (READ, DESCRIBE):
            expected = naive(entries, "User:alice", HOSTS[0], operation, TOPIC, name)
            assert allows(authorizer, ALICE, operation, name) is expected


def test_a_snapshot_replaces_everything() -> None:
    authorizer = with_acls(allow(READ))
    assert allows(authorizer, ALICE, READ, "a")
    authorizer.load(changed(EMPTY_IMAGE, [allow(WRITE)]).after)
    assert not allows(authorizer, ALICE, READ, "a")
    assert allows(authorizer, ALICE, WRITE, "a")


def test_deny_first_and_implied_operations() -> None:
    authorizer = with_acls(allow(READ), deny(allow(READ, principal="User:*")))
    assert not allows(authorizer, ALICE, READ, "a")
    assert allows(authorizer, ALICE, DESCRIBE, "a")  # DENY of READ denies READ only


def test_the_default_is_for_resources_without_any_acl() -> None:
    """KAFKA-14435: an ACL of any user on a resource ends the default for all users."""
    authorizer = with_acls(allow(READ, principal="User:bob"), default=True)
    assert not allows(authorizer, ALICE, READ, "a")
    assert allows(authorizer, ALICE, READ, "other")


def test_super_users_are_never_denied() -> None:
    authorizer = with_acls(deny(allow(AclOperation.ALL, name="*", principal="User:*")))
    root = Client(Principal("User", "root"), "1.2.3.4")
    assert allows(authorizer, root, READ, "a")
    assert authorizer.allowed_for_any(root, WRITE, TOPIC)
    assert not authorizer.allowed_for_any(ALICE, WRITE, TOPIC)


def test_before_the_first_image_only_super_users() -> None:
    authorizer = Authorizer(["User:root"], allow_if_no_acl_found=True)
    assert not allows(authorizer, ALICE, READ, "a")
    assert allows(authorizer, Client(Principal("User", "root"), "h"), READ, "a")
    authorizer.apply(changed(EMPTY_IMAGE))
    assert allows(authorizer, ALICE, READ, "a")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], False),
        ([allow(WRITE, name="x")], True),
        ([allow(READ, name="x")], False),
        ([allow(AclOperation.ALL, name="x", prefixed=True)], True),
        ([allow(WRITE, name="x"), deny(allow(WRITE, name="x"))], False),
        ([allow(WRITE, name="xy"), deny(allow(WRITE, name="x", prefixed=True))], False),
        ([allow(WRITE, name="x", prefixed=True), deny(allow(WRITE, name="x"))], True),
        ([allow(WRITE, name="*"), deny(allow(WRITE, name="x", prefixed=True))], True),
        ([allow(WRITE, name="x"), deny(allow(WRITE, name="*"))], False),
        ([allow(WRITE, name="x", host="10.9.9.9")], False),
    ],
)
def test_any_resource_of_a_type(entries: list[Acl], expected: bool) -> None:
    assert with_acls(*entries).allowed_for_any(ALICE, WRITE, TOPIC) is expected


def test_authorized_operations() -> None:
    authorizer = with_acls(allow(READ), deny(allow(AclOperation.ALTER)))
    bits = authorizer.authorized_operations(ALICE, TOPIC, "a")
    assert bits == (1 << READ) | (1 << DESCRIBE)


def test_log_has_the_words_of_kafka(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    decisions = with_acls().decisions(Client(ANONYMOUS, "10.0.0.9"), WRITE, TOPIC)
    decisions.log("orders", decisions.about("orders"), "PRODUCE", 3)
    assert caplog.messages == [
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 10.0.0.9 on resource "
        "= Topic:LITERAL:orders for request = PRODUCE with resourceRefCount = 3 based on rule "
        "DefaultDeny"
    ]
    decisions = with_acls(allow(WRITE)).decisions(ALICE, WRITE, TOPIC)
    decisions.log("a", decisions.about("a"), "PRODUCE")
    assert len(caplog.messages) == 1  # grants only at DEBUG


def test_a_request_that_names_many_resources_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The attack: one request about 100,000 names takes the event loop five seconds of logging."""
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    decisions = with_acls().decisions(ALICE, DESCRIBE, TOPIC)
    log = RequestLog("METADATA")
    for n in range(1_000):
        log.add(decisions, f"t{n}", decisions.about(f"t{n}"))
    assert len(caplog.messages) == DENIALS_LOGGED_MAX + 1
    assert "on resource = Topic:LITERAL:t99 " in caplog.messages[-2]
    assert caplog.messages[-1] == (
        "Principal = User:alice from host = 127.0.0.1: further denials for this METADATA request "
        "are not logged"
    )
    RequestLog("METADATA").add(decisions, "x", decisions.about("x"))  # the next request
    assert "Topic:LITERAL:x " in caplog.messages[-1]


def test_names_that_a_client_makes_up_do_not_fill_the_memory() -> None:
    """The attack: millions of names, or ids of groups with 32 KB each, that are all remembered."""
    authorizer = with_acls(allow(READ, name="a"))
    clients = [Client(Principal("User", f"u{n}"), "h") for n in range(30)]

    def remembered() -> int:
        return sum(len(found._known) for found in authorizer._sessions.values())

    for n in range(NAMES_MAX):
        assert not allows(authorizer, clients[n % 30], READ, f"t{n}")
    assert remembered() == NAMES_MAX
    assert not allows(authorizer, clients[0], READ, "x" * 250)
    assert remembered() == NAMES_MAX, "a name that no topic can have"
    assert allows(authorizer, ALICE, READ, "a")
    assert remembered() <= 1


@given(st.lists(st.tuples(st.booleans(), acls()), max_size=30))
def test_any_resource_of_a_type_looks_at_the_acls_of_its_client(
    steps: list[tuple[bool, Acl]],
) -> None:
    """The index by principal against all ACLs, after every change."""
    for authorizer, entries in after_each(steps):
        for operation in (READ, WRITE):
            unnamed = naive(entries, "User:alice", HOSTS[0], operation, TOPIC, "hardcode")
            named = any_resource_allowed(entries, ALICE, operation, TOPIC)
            assert authorizer.allowed_for_any(ALICE, operation, TOPIC) is (unnamed or named)


def test_a_check_looks_at_few_of_many_acls() -> None:
    """The number of entries looked at, not a time: 20,000 ACLs, a handful concern a resource."""
    rng = Random(7)
    entries = [
        allow(READ, name=f"t{n}", principal=f"User:u{rng.randrange(500)}", prefixed=n % 2 == 0)
        for n in range(10_000)
    ] + [allow(READ, name="*", principal=f"User:u{n}") for n in range(10_000)]
    authorizer = with_acls(*entries)
    patterns = authorizer._patterns_of(TOPIC, "t9999")
    assert 1 < len(patterns) <= 7  # the literal, `*`, and a prefix per length
    assert sum(len(found.get("User:u1", ())) for found in patterns) <= len(patterns)
