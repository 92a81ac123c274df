"""The same requests about delegation tokens, good and bad, to our broker and to Apache Kafka get
the same answers. Times are compared in minutes from the request, ids and HMACs by the names that
the script gives to tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_tests.security.token_support import (
    CREATE,
    DESCRIBE,
    EXPIRE,
    NEWEST,
    RENEW,
    UserConnection,
    addresses,
    by_token,
    plain,
    principals,
    token_settings,
)
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.client.errors import AuthenticationError
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.engines import RunningApacheKafka, RunningBroker
from odradek_testkit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
FOR_EVER_MS = 2**62
EPOCH_MS = 10**12  # larger numbers are times
DEADLINE_S = 20.0  # for Apache Kafka to publish what its controller has committed
OPEN = ""  # the user of the open listener
METADATA = ApiKey.METADATA


class Step(NamedTuple):
    """`token` names the token that is created, or whose HMAC the request has."""

    label: str
    user: str
    api: ApiKey
    version: int
    fields: dict[str, Any]
    token: str | None = None


def create(
    label: str,
    user: str,
    token: str | None,
    *renewers: str,
    owner: str | None = None,
    life_ms: int = -1,
    version: int = NEWEST[CREATE],
) -> Step:
    kind, _, name = owner.partition(":") if owner is not None else (None, "", None)
    fields = {
        "owner_principal_type": kind,
        "owner_principal_name": name,
        "renewers": principals(*renewers),
        "max_lifetime": life_ms,
    }
    return Step(f"create {label}", user, CREATE, version, fields, token)


def renew(
    label: str, user: str, token: str | None, period_ms: int, version: int = NEWEST[RENEW]
) -> Step:
    return Step(f"renew {label}", user, RENEW, version, {"renew_period": period_ms}, token)


def expire(
    label: str, user: str, token: str | None, period_ms: int, version: int = NEWEST[EXPIRE]
) -> Step:
    return Step(f"expire {label}", user, EXPIRE, version, {"expiry_time_period": period_ms}, token)


def describe(label: str, user: str, *owners: str | None, version: int = NEWEST[DESCRIBE]) -> Step:
    """None as the only owner: the tokens of all owners."""
    wanted = None if owners == (None,) else principals(*map(str, owners))
    return Step(f"describe {label}", user, DESCRIBE, version, {"owners": wanted})


def allow(
    user: str, operation: AclOperation, kind: AclResource, name: str, token: str | None = None
) -> Step:
    acl = Struct(
        resource_type=kind, resource_name=name, resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}", host="*", operation=operation,
        permission_type=AclPermission.ALLOW,
    )  # fmt: skip
    label = f"allow {user} {operation.name} {name}"
    return Step(label, OPEN, ApiKey.CREATE_ACLS, 3, {"creations": [acl]}, token)


def script() -> Iterator[Step]:
    for version in (1, 2, 3):
        yield create(f"on the open listener v{version}", OPEN, None, version=version)
        yield describe(f"on the open listener v{version}", OPEN, None, version=version)
    for version in (1, 2):
        yield renew(f"on the open listener v{version}", OPEN, None, -1, version=version)
        yield expire(f"on the open listener v{version}", OPEN, None, -1, version=version)

    yield describe("before there is a token", "alice", None)
    yield create("for herself", "alice", "of-alice", "User:bob")
    yield create("v1", "alice", "v1", version=1)
    yield create("v2", "alice", "v2", version=2)
    yield create("empty owner", "alice", "empty-owner", owner="User:")
    yield create("for an hour", "alice", "hour", life_ms=HOUR_MS)
    yield create("for 0 ms", "alice", "default", life_ms=0)
    yield create("for ever", "alice", "ever", life_ms=FOR_EVER_MS)
    yield create("negative life", "alice", "negative", life_ms=-5)
    yield create("a group may renew", "alice", None, "Group:staff")
    yield create("a user and a group may renew", "alice", None, "User:bob", "Group:staff")
    yield create("herself named", "alice", "named", owner="User:alice")
    yield create("for carol", "alice", None, owner="User:carol")
    yield create("for carol, a group may renew", "alice", None, "Group:x", owner="User:carol")
    yield create("for anybody, by a super user", "root", "by-root", owner="User:nobody")
    yield allow("alice", AclOperation.CREATE_TOKENS, AclResource.USER, "User:carol")
    yield create("for carol, allowed", "alice", "of-carol", "User:bob", owner="User:carol")

    for version in (1, 2, 3):
        yield describe(f"all v{version}", "alice", None, version=version)
    yield describe("no owners", "alice")
    yield describe("her own", "alice", "User:alice")
    yield describe("of carol", "alice", "User:carol")
    yield describe("of two", "root", "User:carol", "User:nobody")
    yield describe("of nobody", "root", "User:unknown")
    yield describe("by the owner, not the requester", "carol", None)
    yield describe("by a renewer", "bob", None)
    yield describe("by a stranger", "dave", None)
    yield describe("by a stranger, of alice", "dave", "User:alice")
    yield allow("dave", AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, "", "of-alice")
    yield describe("one token allowed", "dave", None)
    yield describe("one token allowed, another owner", "dave", "User:carol")
    yield allow("dave", AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:carol")
    yield describe("an owner allowed", "dave", None)

    for version in (1, 2):
        yield renew(f"by the owner v{version}", "alice", "of-alice", -1, version=version)
    yield renew("for an hour by a renewer", "bob", "of-alice", HOUR_MS)
    yield renew("for 0 ms", "bob", "of-alice", 0)
    yield renew("for ever", "bob", "of-alice", FOR_EVER_MS)
    yield renew("beyond its life", "alice", "hour", 5 * HOUR_MS)
    yield renew("by a stranger", "dave", "of-alice", HOUR_MS)
    yield renew("by a super user", "root", "of-alice", HOUR_MS)
    yield renew("by the requester", "alice", "of-carol", HOUR_MS)
    yield renew("an unknown one", "alice", None, HOUR_MS)

    for version in (1, 2):
        yield expire(f"in an hour v{version}", "alice", "of-alice", HOUR_MS, version=version)
    yield expire("by a renewer", "bob", "of-alice", 2 * HOUR_MS)
    yield expire("beyond its life", "alice", "hour", FOR_EVER_MS)
    yield expire("by a stranger", "dave", "of-alice", HOUR_MS)
    yield expire("by the requester", "alice", "of-carol", -1)
    yield expire("an unknown one", "alice", None, -1)
    yield describe("after renewals", "alice", None)
    yield expire("v1 at once", "alice", "v1", -1)
    yield expire("v2 at once, -7", "alice", "v2", -7)
    yield describe("after removals", "alice", None)
    yield renew("a removed one", "alice", "v1", -1)
    yield expire("a removed one", "alice", "v1", -1)

    yield expire("now", "alice", "named", 0)
    yield create("for 1 ms", "alice", "short", life_ms=1)
    yield renew("an expired one", "alice", "short", -1)
    yield renew("an expired one, by a stranger", "dave", "short", -1)
    yield expire("an expired one", "alice", "short", HOUR_MS)
    yield expire("an expired one, by a stranger", "dave", "short", HOUR_MS)
    yield describe("an expired one", "alice", "User:alice")
    yield expire("an expired one at once", "alice", "short", -1)
    yield describe("at the end", "root", None)

    for api, fields in (
        (CREATE, create("", "", None).fields),
        (RENEW, {"renew_period": -1}),
        (EXPIRE, {"expiry_time_period": -1}),
        (DESCRIBE, {"owners": None}),
    ):
        label = f"{api.name} on a connection of a token"
        yield Step(label, "token:of-alice", api, NEWEST[api], fields, None)


class Run:
    """One engine: its connections by user, and its tokens by name."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._open, self._clients = addresses(settings)
        self._connections: dict[str, UserConnection] = {}
        self._tokens: dict[str, tuple[str, bytes]] = {}

    def ask(self, step: Step) -> Any:
        fields = dict(step.fields)
        if step.api in (RENEW, EXPIRE):
            fields["hmac"] = self._tokens[step.token][1] if step.token else b"unknown"
        if step.api is ApiKey.CREATE_ACLS and step.token:
            fields["creations"][0].resource_name = self._tokens[step.token][0]
        now_ms = int(time.time() * 1000)
        answer = self._connection(step.user).ask(step.api, step.version, **fields)
        if step.api is CREATE and not answer.error_code:
            assert step.token, f"{step.label}: was expected to be refused"
            assert (len(answer.token_id), len(answer.hmac)) == (22, 64)
            self._tokens[step.token] = answer.token_id, bytes(answer.hmac)
            if step.fields["max_lifetime"] == 1:  # the next steps are about an expired token
                wait_until(lambda: time.time() * 1000 > answer.max_timestamp + 1)
        return self._comparable(answer, now_ms)

    def login(self, token: str, mechanism: str, hmac: bytes | None = None) -> str:
        """ "" or the reason of the refusal."""
        token_id, real = self._tokens.get(token, ("unknown", b"unknown"))
        try:
            login = by_token(token_id, real if hmac is None else hmac, mechanism)
            connection = UserConnection(self._clients, login)
        except AuthenticationError as error:
            return str(error)
        names = [Struct(topic_id=None, name="of-nobody")]
        answer = connection.ask(
            METADATA, 12, topics=names, allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        connection.close()
        return f"topic: {ErrorCode(answer.topics[0].error_code).name}"

    def _connection(self, user: str) -> UserConnection:
        if user not in self._connections:
            if user == OPEN:
                made = UserConnection(self._open, None)
            elif user.startswith("token:"):
                made = UserConnection(self._clients, by_token(*self._tokens[user[6:]]))
            else:
                made = UserConnection(self._clients, plain(user))
            self._connections[user] = made
        return self._connections[user]

    def _comparable(self, value: Any, now_ms: int) -> Any:
        if isinstance(value, Struct):
            return {k: self._comparable(v, now_ms) for k, v in sorted(vars(value).items())}
        if isinstance(value, list | tuple):
            return sorted((self._comparable(one, now_ms) for one in value), key=repr)
        for name, known in self._tokens.items():
            if value in known:
                return name
        if isinstance(value, int) and value > EPOCH_MS:
            return f"in {round((value - now_ms) / MINUTE_MS)} min"
        return value

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def differs_for_now(step: Step, theirs: Any) -> bool:
    """The answer may be of before the last change, and asking again changes nothing."""
    return step.api is DESCRIBE or theirs.get("error_code") in (
        ErrorCode.delegation_token_not_found,
        ErrorCode.delegation_token_authorization_failed,
    )


def play(ours: Run, apache: Run) -> tuple[list[str], int]:
    wrong, count = [], 0
    for step in script():
        mine, theirs = ours.ask(step), apache.ask(step)
        give_up = time.monotonic() + DEADLINE_S
        while mine != theirs and differs_for_now(step, theirs) and time.monotonic() < give_up:
            theirs = apache.ask(step)
        count += 1
        if mine != theirs:
            wrong.append(f"{step.label}\n  ours:   {mine}\n  apache: {theirs}")
    return wrong, count


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Run]]:
    directory = tmp_path_factory.mktemp("tokens")
    mine, theirs = token_settings(RunningBroker), token_settings(RunningApacheKafka)
    with (
        RunningBroker(mine, directory=directory / "ours"),
        RunningApacheKafka(theirs, directory=directory / "apache"),
    ):
        ours, apache = Run(mine), Run(theirs)
        yield ours, apache
        ours.close()
        apache.close()


def test_same_answers(engines: tuple[Run, Run]) -> None:
    wrong, count = play(*engines)
    assert not wrong, f"{len(wrong)} of {count} answers differ:\n" + "\n".join(wrong)


def test_same_logins(engines: tuple[Run, Run]) -> None:
    """With tokens that the script has left behind."""
    ours, apache = engines
    for run in engines:
        step = create("for logins", "alice", "login")
        assert run.ask(step)["error_code"] == ErrorCode.none
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for token, hmac in (("login", None), ("login", b"wrong"), ("v1", None), ("none", None)):
            mine = ours.login(token, mechanism, hmac)
            give_up = time.monotonic() + DEADLINE_S
            theirs = apache.login(token, mechanism, hmac)
            while theirs != mine and time.monotonic() < give_up:
                theirs = apache.login(token, mechanism, hmac)
            assert mine == theirs, (mechanism, token, hmac)
            assert mine.startswith("topic") == (token == "login" and hmac is None)


def test_without_a_key(tmp_path: Path) -> None:
    """`delegation.token.secret.key` is empty: every request is refused, in this order."""
    off = {"delegation_token_secret_key": ""}
    mine = token_settings(RunningBroker, **off)
    theirs = token_settings(RunningApacheKafka, **off)
    with (
        RunningBroker(mine, directory=tmp_path / "ours"),
        RunningApacheKafka(theirs, directory=tmp_path / "apache"),
    ):
        ours, apache = Run(mine), Run(theirs)
        for step in (
            create("on the open listener", OPEN, None),
            create("for herself", "alice", None),
            create("v1", "alice", None, version=1),
            create("for carol", "alice", None, owner="User:carol"),
            create("a group may renew", "alice", None, "Group:staff"),
            renew("an unknown one", "alice", None, -1),
            expire("an unknown one", "alice", None, -1),
            describe("all", "alice", None),
            describe("none", "alice"),
        ):
            assert ours.ask(step) == apache.ask(step), step.label
        ours.close()
        apache.close()
