"""The plan of users: exact, idempotent, and objects of other users are not touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek_api.base import API_VERSION, Resource
from odradek_api.parse import parse
from odradek_operator.security.users import (
    ITERATIONS,
    DeleteCredentials,
    DesiredUser,
    ObservedUsers,
    RemoveAcls,
    SetPassword,
    build_user,
    conflicts,
    new_iterations,
    not_accepted,
    plan_user,
)
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_testkit.kubernetes.fake_users import apply

NAMES = ("alice", "bob", "alice2")
PASSWORD = ("secret", 5000)


def resource(kind: str, called: str, inside: str = "default", **spec: Any) -> Resource[Any]:
    metadata = {"name": called, "namespace": inside}
    found = parse({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
    assert found is not None
    return found


def user(of: str = "alice", **spec: Any) -> DesiredUser:
    return build_user(resource("KafkaUser", of, cluster={"name": "main"}, **spec))


def others(observed: ObservedUsers, name: str) -> tuple[object, ...]:
    """All that does not belong to this user."""
    return (
        {n: f for n, f in observed.scram.items() if n != name},
        {a for a in observed.acls or () if a.principal != f"User:{name}"},
        {e: v for e, v in observed.quotas.items() if ("user", name) not in e},
    )


acl_entries = st.builds(
    AclEntry,
    st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    st.sampled_from(["orders", "o", "*"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([*(f"User:{name}" for name in NAMES), "User:*", "Group:alice"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([AclOperation.READ, AclOperation.WRITE]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
names_or_default = st.sampled_from([*NAMES, None])
entities = st.one_of(
    st.tuples(st.tuples(st.just("user"), names_or_default)),
    st.tuples(st.tuples(st.just("client-id"), names_or_default)),
    st.tuples(
        st.tuples(st.just("client-id"), names_or_default),
        st.tuples(st.just("user"), names_or_default),
    ),
)
quota_values = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
    st.sampled_from([1.0, 2.0]),
    min_size=1,
)
worlds = st.builds(
    ObservedUsers,
    st.dictionaries(
        st.sampled_from(NAMES),
        st.dictionaries(st.sampled_from([1, 2]), st.sampled_from([4096, 5000]), min_size=1),
    ),
    st.one_of(st.none(), st.frozensets(acl_entries, max_size=8)),
    st.dictionaries(entities, quota_values, max_size=5),
)
acls_of_specs = st.lists(
    st.fixed_dictionaries(
        {
            "resource": st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["topic", "group"]),
                    "name": st.sampled_from(["orders", "o"]),
                    "pattern": st.sampled_from(["literal", "prefix"]),
                }
            ),
            "operations": st.just(["read", "write"]),
            "permission": st.sampled_from(["allow", "deny"]),
        }
    ),
    max_size=4,
)
users = st.builds(
    lambda kind, acls, quotas, delete: replace(
        user(authentication={"type": kind}, acls=acls, quotas=quotas), delete=delete
    ),
    st.sampled_from(["scram-sha-512", "scram-sha-256", "mtls", "external"]),
    acls_of_specs,
    st.sampled_from([{}, {"producerByteRate": 2}, {"consumerByteRate": 1.0}]),
    st.booleans(),
)


@given(users, worlds)
def test_a_user_is_held_exactly_and_nothing_of_others_is_touched(
    wanted: DesiredUser, before: ObservedUsers
) -> None:
    after = apply(plan_user(wanted, PASSWORD, before), before)
    assert others(after, wanted.name) == others(before, wanted.name)
    assert plan_user(wanted, PASSWORD, after) == [], "a second pass has nothing to do"
    if wanted.authentication != "external":
        mechanism = None if wanted.delete else wanted.mechanism
        expected = {mechanism: PASSWORD[1]} if mechanism else {}
        assert after.scram.get(wanted.name, {}) == expected
    else:
        assert after.scram.get(wanted.name) == before.scram.get(wanted.name)
    if after.acls is not None:
        found = {acl for acl in after.acls if acl.principal == wanted.principal}
        assert found == (frozenset() if wanted.delete else wanted.acls)
    own = {e: v for e, v in after.quotas.items() if ("user", wanted.name) in e}
    limits: Mapping[str, float] = {} if wanted.delete else wanted.quotas
    assert own == ({(("user", wanted.name),): limits} if limits else {})


@given(users, worlds, st.integers(0, 10))
def test_a_plan_that_ends_anywhere_is_completed_by_the_next_one(
    wanted: DesiredUser, before: ObservedUsers, done: int
) -> None:
    plan = plan_user(wanted, PASSWORD, before)
    part = apply(plan[:done], before)
    assert apply(plan_user(wanted, PASSWORD, part), part) == apply(plan, before)


def test_a_password_that_somebody_else_set_is_replaced() -> None:
    observed = ObservedUsers({"alice": {2: 4096}})
    (action,) = plan_user(user(), PASSWORD, observed)
    assert isinstance(action, SetPassword)
    assert action.reason.message == "the SCRAM-SHA-512 password of User:alice differs"
    assert "secret" not in repr(action)


def test_a_deleted_user_loses_its_password_first() -> None:
    granted = [{"resource": {"type": "topic", "name": "orders"}, "operations": ["read"]}]
    before = ObservedUsers({"alice": {2: 5000}}, user(acls=granted).acls)
    plan = plan_user(replace(user(acls=granted), delete=True), None, before)
    assert [type(action) for action in plan] == [DeleteCredentials, RemoveAcls]
    assert plan[1].reason.message == (
        "KafkaUser default/alice is deleted, and with it ALLOW READ on topic orders of User:alice"
    )


@given(st.frozensets(st.integers(4000, 9000)), st.integers(0))
def test_new_iterations_never_repeat(taken: frozenset[int], seed: int) -> None:
    found = new_iterations(taken, lambda below: seed % below)
    assert found in ITERATIONS
    assert found not in taken


def test_only_one_resource_manages_a_principal() -> None:
    first, second = user("alice"), replace(user("alice"), owner="other/alice")
    message = "KafkaUser default/alice manages User:alice already"
    assert conflicts([second, first], {}, frozenset()) == {"other/alice": message}
    assert conflicts([first, second], {"User:alice": "other/alice"}, frozenset()) == {
        "default/alice": "KafkaUser other/alice manages User:alice already"
    }
    gone = replace(second, delete=True)
    assert "other/alice" in conflicts([gone], {"User:alice": "default/alice"}, frozenset())
    assert "other/alice" in conflicts([gone], {}, frozenset()), "it has nothing to remove"


def test_nobody_takes_the_name_of_the_operator() -> None:
    reserved = frozenset({"User:CN=odradek-operator,O=odradek.dev"})
    taken = user(name="CN=odradek-operator,O=odradek.dev", authentication={"type": "external"})
    assert "reserved" in conflicts([taken], {}, reserved)["default/alice"]


def test_namespaces() -> None:
    main = resource("KafkaCluster", "main", userNamespaces=["apps"])
    spec: dict[str, Any] = {"cluster": {"name": "main", "namespace": "default"}}
    assert not not_accepted(main, resource("KafkaUser", "u", **spec))
    assert not not_accepted(main, resource("KafkaUser", "u", "apps", **spec))
    assert "namespace other is not in spec.userNamespaces of KafkaCluster default/main" in (
        not_accepted(main, resource("KafkaUser", "u", "other", **spec))
    )
    elsewhere = resource("KafkaUser", "u", "apps", **spec, secret={"namespace": "kube-system"})
    assert "spec.secret.namespace kube-system" in not_accepted(main, elsewhere)
    back = resource("KafkaUser", "u", "apps", **spec, secret={"namespace": "default"})
    assert "spec.secret.namespace default" in not_accepted(main, back)
