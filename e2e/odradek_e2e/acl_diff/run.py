"""Rounds of ACLs, and of requests under them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Final

from odradek_e2e.acl_diff.users import ADMIN, CLIENTS, HOSTS, USERS, Client, credentials
from odradek_e2e.diff.engines import Engine
from odradek_e2e.diff.run import Met, Run
from odradek_e2e.diff.values import Round
from odradek_protocol.messages.struct import Struct

ANY_HOST: Final = "*"
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_USERS, ALTER_USERS = 50, 51
ACLS_VERSION = 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, ANY = 2, 1
OPERATIONS: Final = {
    TOPIC: (ALL, 3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (ALL, 3, 6, 8, 10, 11),
    CLUSTER: (ALL, 5, 7, 8, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (ALL, 4, 8),
    DELEGATION_TOKEN: (ALL, 8),
    USER: (ALL, 13, 14),
}
PRINCIPALS: Final = (*(f"User:{user.user}" for user in USERS), "User:*")
ACLS_PER_ROUND: Final = 20
# So often a request is the super user's; the others are spread over CLIENTS.
ADMINS_SHARE: Final = 0.1
NULLS: Final = "Null value not supported for"
EMPTY_GROUP: Final = "a refused request leaves an empty group in Kafka's memory until a restart"
NO_CONSUMER_GROUP: Final = re.compile(r"Group (\S+) is not a consumer group\.")
NOT_FOUND: Final = re.compile(r"Group (\S+) not found\.")
ALTERS: Final = ("alter_configs", "incremental_alter_configs")
# Changes of ACLs by clients would outlive their round.
NOT_SENT: Final = frozenset((CREATE_ACLS, DELETE_ACLS))


class AclRun(Run):
    """Rounds of the protocol diff, each under ACLs of its own."""

    malformed = 0.0

    def __init__(self, ours: Engine, apache: Engine, seed: int) -> None:
        super().__init__(ours, apache, seed)
        self._client = ADMIN

    def prepare(self) -> None:
        """The users of SCRAM; those of PLAIN are in the settings."""
        self._come_from(ADMIN)
        wanted = credentials()
        names = [Struct(name=one.name) for one in wanted.upsertions]
        for engine in (self.ours, self.apache):
            answer = self._ask(engine, ALTER_USERS, 0, wanted)
            assert not any(one.error_code for one in answer.results), (engine.name, answer)
            self._until(
                engine, DESCRIBE_USERS, 0, Struct(users=names),
                lambda answer: not any(one.error_code for one in answer.results),
            )  # fmt: skip

    def _begin(self, number: int) -> Round:
        self._come_from(ADMIN)
        self._delete()
        round_ = super()._begin(number)
        self._create([self._some_acl(round_) for _ in range(ACLS_PER_ROUND)])
        return round_

    def _one(self, round_: Round, api_key: int, version: int) -> None:
        if api_key in NOT_SENT:
            return
        admins = self.rng.random() < ADMINS_SHARE
        self._come_from(ADMIN if admins else self.rng.choice(CLIENTS))
        super()._one(round_, api_key, version)
        for number, met in enumerate(self.tally.met):
            if met.reason is None:
                self.tally.met[number] = met._replace(reason=reason_for(met))

    def _published(self) -> None:
        client = self._client
        self._come_from(ADMIN)
        super()._published()
        self._come_from(client)

    def _come_from(self, client: Client) -> None:
        self._client = client
        for engine in (self.ours, self.apache):
            engine.come_from(client.host, client.login)

    def _some_acl(self, round_: Round) -> Struct:
        return some_acl(self.rng, round_)

    def _create(self, acls: list[Struct]) -> None:
        wanted = {repr(acl) for acl in acls}

        def has_all(answer: Any) -> bool:
            return wanted <= {repr(acl) for acl in _described(answer)}

        for engine in (self.ours, self.apache):
            answer = self._ask(engine, CREATE_ACLS, ACLS_VERSION, Struct(creations=acls))
            assert not any(one.error_code for one in answer.results), (engine.name, answer)
            self._until(engine, DESCRIBE_ACLS, ACLS_VERSION, _filter(), has_all)

    def _delete(self) -> None:
        for engine in (self.ours, self.apache):
            self._ask(engine, DELETE_ACLS, ACLS_VERSION, Struct(filters=[_filter()]))
            self._until(
                engine, DESCRIBE_ACLS, ACLS_VERSION, _filter(),
                lambda answer: not answer.resources,
            )  # fmt: skip


def reason_for(met: Met) -> str | None:
    """Why this difference under ACLs is accepted."""
    theirs = str(met.difference.apache)
    if met.difference.field.endswith("error_message") and theirs.startswith("Request Request("):
        return "Kafka's text is the Java object of the request; ours: Cluster authorization failed."
    if met.api == "describe_groups" and (theirs, met.difference.embedded) == ("Empty", "Dead"):
        return EMPTY_GROUP
    if met.api == "delete_groups" and (theirs, str(met.difference.embedded)) == ("0", "69"):
        return EMPTY_GROUP  # which Kafka then deletes; ours: GROUP_ID_NOT_FOUND
    if met.api == "consumer_group_describe" and met.difference.field == "groups[].error_message":
        pair = (
            NO_CONSUMER_GROUP.fullmatch(theirs),
            NOT_FOUND.fullmatch(str(met.difference.embedded)),
        )
        if pair[0] and pair[1] and pair[0][1] == pair[1][1]:
            return EMPTY_GROUP
    if met.api in ALTERS and "value=None" in met.request and theirs.startswith((NULLS, "42")):
        return "Kafka's broker refuses null values before the controller looks at rights"
    if met.api == "describe_user_scram_credentials" and theirs == "silence":
        return "Kafka never answers a denied request for all users"
    return None


def some_acl(rng: random.Random, round_: Round) -> Struct:
    """An entry that is likely to matter for the requests of the round."""
    kind = rng.choice((
        *(TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, TRANSACTIONAL_ID),
        *(DELEGATION_TOKEN, USER),
    ))  # fmt: skip
    names = {
        TOPIC: [*round_.topics, *round_.doomed, "__consumer_offsets", "unknown"],
        GROUP: [*round_.groups, *round_.consumer_groups, "unknown"],
        TRANSACTIONAL_ID: [*round_.transactional_ids, "unknown"],
        CLUSTER: ["kafka-cluster"],
        DELEGATION_TOKEN: ["*"],  # each engine has ids of its own
        USER: [f"User:{user.user}" for user in USERS],
    }[kind]
    name, pattern = rng.choice(names), LITERAL
    if kind != CLUSTER and rng.random() < 0.3:
        pattern, name = PREFIXED, name[: rng.randrange(1, len(name) + 1)]
    elif kind != CLUSTER and rng.random() < 0.2:
        name = "*"
    operation = ALL if rng.random() < 0.2 else rng.choice(OPERATIONS[kind])
    permission = DENY if rng.random() < 0.2 else ALLOW
    host = rng.choice((*HOSTS, ANY_HOST, ANY_HOST))
    return _acl(kind, name, pattern, rng.choice(PRINCIPALS), host, operation, permission)


def _acl(  # fields in the order of the request
    kind: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> Struct:
    return Struct(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern,
        principal=principal, host=host, operation=operation, permission_type=permission,
    )  # fmt: skip


def _described(answer: Any) -> Iterator[Struct]:
    for one in answer.resources:
        for acl in one.acls:
            yield _acl(
                one.resource_type, one.resource_name, one.pattern_type,
                acl.principal, acl.host, acl.operation, acl.permission_type,
            )  # fmt: skip


def _filter() -> Struct:
    return Struct(
        resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
