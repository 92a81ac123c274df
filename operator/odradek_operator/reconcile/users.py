"""One pass over the users of one cluster: observe, plan, report, act.

    assessed = assess_users(users, managed, entrance, admin, secrets)    # changes nothing
    persist(managed_after(managed, assessed))
    for one in assessed:
        failures = act_on_user(one, admin, secrets)

The Secret is written before the password is set in Kafka: an operator that is killed in between
finds the password again, and the next pass sets it.
"""

from __future__ import annotations

import secrets as random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from odradek_api.base import instant
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin
from odradek_operator.kafka.status import conditions
from odradek_operator.reason import Reason
from odradek_operator.security.credentials import (
    PASSWORD_BYTES,
    Credentials,
    NoCredentialsError,
    Randomness,
    Sources,
    Stored,
    decide,
    render,
)
from odradek_operator.security.entrance import Entrance, way_in
from odradek_operator.security.pki import read
from odradek_operator.security.users import (
    DesiredUser,
    ObservedUsers,
    UserAction,
    conflicts,
    plan_user,
)

UNAVAILABLE, NO_SECRET = "ClusterUnavailable", "SecretUnavailable"
RANDOMNESS = Randomness(lambda: random.token_urlsafe(PASSWORD_BYTES), random.randbelow)


class Secrets(Protocol):
    """Where Secrets are kept; names are "namespace/name". All methods may raise SecretError."""

    def find(self, name: str) -> Stored | None: ...

    def password(self, name: str, key: str) -> str | None:
        """An entry of a Secret that a person made."""

    def write(
        self, user: DesiredUser, data: Mapping[str, bytes], credentials: Credentials
    ) -> None: ...

    def remove(self, name: str) -> None: ...


class SecretError(Exception):
    """A Secret cannot be read or written; the message names it and says why."""


@dataclass(frozen=True)
class AssessedUser:
    user: DesiredUser
    plan: Sequence[UserAction] = ()
    problem: Reason | None = None  # why it is not ready, in addition to the plan
    credentials: Credentials = field(default_factory=Credentials)
    secret: Mapping[str, bytes] | None = field(repr=False, default=None)  # None: nothing to write
    remove_secret: str = ""  # name of a Secret that is not needed any more
    manages: bool = False  # its principal

    @property
    def lines(self) -> list[str]:
        """The pending actions, in sentences."""
        found = [action.reason.message for action in self.plan]
        if self.secret is not None:
            found.insert(0, f"Secret {self.user.secret} is written with the credentials")
        if self.remove_secret:
            found.append(f"Secret {self.remove_secret} is removed")
        return found

    @property
    def unavailable(self) -> bool:
        """The cluster or the Secret did not answer: nothing can be concluded."""
        return self.problem is not None and self.problem.code in (UNAVAILABLE, NO_SECRET)

    @property
    def secret_name(self) -> str:
        """The Secret to record: the old one, until it has been removed."""
        return self.remove_secret or self.user.secret

    @property
    def gone(self) -> bool:
        """Whether it is a deleted user that has nothing left in Kafka."""
        left = self.plan or self.remove_secret or self.unavailable
        return self.user.delete and not left


def assess_users(
    users: Iterable[DesiredUser],
    managed: Mapping[str, str],
    entrance: Entrance,
    admin: KafkaAdmin,
    secrets: Secrets,
) -> list[AssessedUser]:
    """`managed`: principal → the KafkaUser that manages it."""
    wanted = list(users)
    if not wanted:
        return []
    refused = conflicts(wanted, managed, entrance.reserved)
    try:
        observed = admin.observe_users()
    except AdminError as error:
        pending = Reason(UNAVAILABLE, str(error))
        return [AssessedUser(user, problem=pending) for user in wanted]
    return [
        AssessedUser(user, problem=Reason("Conflict", refused[user.owner]))
        if user.owner in refused
        else _assess(user, observed, entrance, secrets, managed)
        for user in wanted
    ]


def _assess(
    user: DesiredUser,
    observed: ObservedUsers,
    entrance: Entrance,
    secrets: Secrets,
    managed: Mapping[str, str],
) -> AssessedUser:
    try:
        found = _own(secrets.find(user.secret), user)
        if user.delete:
            plan = plan_user(user, None, observed)
            return AssessedUser(user, plan, remove_secret=user.secret if found else "",
                                manages=True)  # fmt: skip
        if found is None and secrets.find(user.secret) is not None:
            message = f"Secret {user.secret} exists already and is not this user's: name another"
            already = managed.get(user.principal) == user.owner
            return AssessedUser(user, problem=Reason("SecretTaken", message), manages=already)
        old = None
        if user.previous_secret not in ("", user.secret):
            old = _own(secrets.find(user.previous_secret), user)
        given = secrets.password(*user.password_from) if user.password_from else None
    except SecretError as error:
        return AssessedUser(user, problem=Reason(NO_SECRET, str(error)))
    used = frozenset(observed.scram.get(user.name, {}).values())
    sources = Sources(given, entrance.clients_ca, used)
    stored, doomed = found or old or Stored(), user.previous_secret if old else ""
    access, problem = way_in(user, entrance)
    try:
        made = decide(user, stored, sources, time.time(), RANDOMNESS)
    except NoCredentialsError as error:
        plan = plan_user(user, None, observed)
        return AssessedUser(user, plan, error.reason, remove_secret=doomed, manages=True)
    data = render(user, made, access, stored)
    same = found is not None and (data, made.iterations, made.rotation) == (
        dict(found.data), found.iterations, found.rotation,
    )  # fmt: skip
    if observed.acls is None and user.acls:
        message = (
            "the cluster has no authorizer, so ACLs have no effect: set its spec.security to strict"
        )
        problem = problem or Reason("NoAuthorizer", message)
    plan = plan_user(user, made.scram, observed)
    return AssessedUser(user, plan, problem, made, None if same else data, doomed, manages=True)


def _own(found: Stored | None, user: DesiredUser) -> Stored | None:
    return found if found is not None and found.owner == user.owner else None


def managed_after(managed: Mapping[str, str], assessed: Iterable[AssessedUser]) -> dict[str, str]:
    """To be persisted before acting."""
    after = dict(managed)
    for one in assessed:
        if one.unavailable:
            continue
        if one.manages and not one.gone:
            after[one.user.principal] = one.user.owner
        elif after.get(one.user.principal) == one.user.owner:
            del after[one.user.principal]
    return after


def act_on_user(one: AssessedUser, admin: KafkaAdmin, secrets: Secrets) -> list[str]:
    """Returns the errors, in sentences; the next pass tries again."""
    try:
        if one.secret is not None:
            secrets.write(one.user, one.secret, one.credentials)
        for action in one.plan:
            try:
                admin.carry_out_user(action)
            except AdminError as error:
                return [f"{action.reason.message}: {error}"]
        if one.remove_secret:
            secrets.remove(one.remove_secret)
    except SecretError as error:
        return [str(error)]
    return []


def user_status(
    one: AssessedUser, before: KafkaUserStatus, generation: int, failures: Sequence[str] = ()
) -> KafkaUserStatus:
    """Ready is true when a pass finds nothing to do."""
    if one.problem is not None:
        ready, reason = "False", one.problem
    elif failures:
        ready, reason = "False", Reason("Failed", failures[0])
    elif one.lines:
        ready, reason = "False", Reason("Updating", one.lines[0])
    else:
        ready, reason = "True", Reason("Ready", f"{one.user.principal} is as declared")
    pair = one.credentials.certificate
    made = conditions([("Ready", ready, reason)], before.conditions, generation, time.time())
    return KafkaUserStatus(
        observed_generation=generation,
        conditions=made,
        principal=_kept(one, before.principal, one.user.principal),
        secret=_kept(one, before.secret, one.secret_name),
        acl_count=len(one.user.acls) if one.manages and not one.plan else before.acl_count,
        certificate_expires=instant(read(pair.certificate_pem).not_after) if pair else "",
    )


def _kept(one: AssessedUser, before: str, now: str) -> str:
    if one.unavailable:
        return before
    return now if one.manages else ""
