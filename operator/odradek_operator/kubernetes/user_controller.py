"""Reconciles the KafkaUsers of one cluster, as a part of the cluster's pass.

The state that a restart needs is written before the action: the finalizer, and in the status which
principal this resource manages. So a user that is deleted, or whose namespace is no longer
accepted, loses its rights, also if its spec has become invalid meanwhile. Without its cluster a
user has no rights: its finalizer is removed at once, so that a namespace always terminates.
"""

from __future__ import annotations

import logging
import time

import msgspec
from lightkube import Client

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.status import conditions
from odradek_operator.kubernetes.events import Events
from odradek_operator.kubernetes.objects import (
    USER_FINALIZER,
    Document,
    get,
    set_finalizer,
    write_status,
)
from odradek_operator.kubernetes.user_book import UserBook, UserObject
from odradek_operator.kubernetes.user_secrets import UserSecrets
from odradek_operator.reason import Reason
from odradek_operator.reconcile.users import (
    UNAVAILABLE,
    AssessedUser,
    SecretError,
    act_on_user,
    assess_users,
    managed_after,
    user_status,
)
from odradek_operator.security.entrance import Entrance
from odradek_operator.security.users import DesiredUser, not_accepted

log = logging.getLogger(__name__)


class UserController:
    def __init__(self, client: Client, book: UserBook, events: Events) -> None:
        self._client = client
        self._book = book
        self._events = events
        self.failures: list[str] = []

    def one_pass(
        self, cluster: Resource[KafkaClusterSpec], entrance: Entrance, admin: KafkaAdmin
    ) -> bool:
        """Returns whether something was done; `failures` has the errors."""
        self.failures = []
        users = {user.key: user for user in self._book.of(cluster.key)}
        if not users:
            return False
        uids = {key: str(user.document["metadata"].get("uid")) for key, user in users.items()}
        secrets = UserSecrets(self._client, uids)
        wanted = [w for user in users.values() if (w := self._wanted(user, cluster)) is not None]
        managed = {u.status.principal: key for key, u in users.items() if u.status.principal}
        assessed = assess_users(wanted, managed, entrance, admin, secrets)
        after = managed_after(managed, assessed)
        done = False
        for one in assessed:
            user = users[one.user.owner]
            self._prepare(user, one, after)
            if cluster.spec.pause:
                continue
            failed = self._act(user, one, admin, secrets)
            done = done or bool(one.lines and not failed)
        for user in users.values():
            if user.deleting and user.held and not self._manages(user, after):
                self._release(user)
        return done

    def wait(self, cluster: Resource[KafkaClusterSpec], why: str) -> None:
        """No broker answers: nothing is concluded."""
        for user in self._book.of(cluster.key):
            self._not_ready(user, Reason(UNAVAILABLE, why))

    def without_cluster(self, cluster: str) -> bool:
        """The cluster does not exist: reports it, and removes the finalizers of deleted users."""
        users = self._book.of(cluster)
        for user in users:
            if not user.deleting:
                message = f"KafkaCluster {cluster} does not exist"
                self._not_ready(user, Reason("ClusterMissing", message))
            elif user.held:
                if user.status.secret:
                    self._remove_secret(user, user.status.secret)
                message = f"KafkaCluster {cluster} was deleted, and its users with it"
                self._events.record(user.document, "ClusterMissing", message)
                self._release(user)
        return bool(users)

    # -- parts -------------------------------------------------------------------------------------

    def _wanted(self, user: UserObject, cluster: Resource[KafkaClusterSpec]) -> DesiredUser | None:
        """The desired state of this user; None if there is nothing to do for it."""
        if user.deleting:
            return user.withdrawn
        if user.resource is None:
            self._not_ready(user, Reason("InvalidSpec", user.problem))
            return None
        if problem := not_accepted(cluster, user.resource):
            self._not_ready(user, Reason("NotAccepted", problem))
            return user.withdrawn
        return user.wanted

    def _prepare(self, user: UserObject, one: AssessedUser, managed: dict[str, str]) -> None:
        """Persists the state that the actions depend on, and the status."""
        if user.deleting:
            return
        if managed.get(one.user.principal) == one.user.owner or one.user.delete:
            held = managed.get(one.user.principal) == one.user.owner
            self._put(set_finalizer(self._client, user.document, held=held, name=USER_FINALIZER))
        if one.user.delete:  # not accepted: the status says so already
            if one.gone:
                status = msgspec.structs.replace(self._now(user).status, principal="", secret="")
                self._put(write_status(self._client, self._now(user).document, status))
            return
        self._write(user, one)

    def _act(
        self, user: UserObject, one: AssessedUser, admin: KafkaAdmin, secrets: UserSecrets
    ) -> bool:
        """Returns whether it failed."""
        if one.problem is not None:
            self._events.record(user.document, one.problem.code, one.problem.message, warning=True)
        for action in one.plan:
            log.info("KafkaUser %s: %s", one.user.owner, action.reason)
            self._events.record(user.document, action.reason.code, action.reason.message)
        failed = act_on_user(one, admin, secrets)
        for failure in failed:
            log.warning("KafkaUser %s: %s", one.user.owner, failure)
            self._events.record(user.document, "Failed", failure, warning=True)
        self.failures += failed
        if failed and not one.user.delete:
            self._write(self._now(user), one, failed)
        return bool(failed)

    def _write(self, user: UserObject, one: AssessedUser, failed: list[str] | None = None) -> None:
        now = self._now(user)
        status = user_status(one, now.status, now.generation, failed or ())
        self._put(write_status(self._client, now.document, status))

    def _manages(self, user: UserObject, managed: dict[str, str]) -> bool:
        return user.key in managed.values()

    def _release(self, user: UserObject) -> None:
        document = self._now(user).document
        found = set_finalizer(self._client, document, held=False, name=USER_FINALIZER)
        self._put(found)
        if found is not None and not found["metadata"].get("finalizers"):
            self._book.forget(user.key)

    def _remove_secret(self, user: UserObject, name: str) -> None:
        """In the user's namespace its owner reference deletes it; elsewhere we delete it, if
        allowed.
        """
        secrets = UserSecrets(self._client, {})
        try:
            found = secrets.find(name)
            if found is not None and found.owner == user.key:
                secrets.remove(name)
        except SecretError as error:
            log.warning("KafkaUser %s: %s", user.key, error)

    def _not_ready(self, user: UserObject, reason: Reason) -> None:
        now = self._now(user)
        if now.deleting:
            return
        made = conditions(
            [("Ready", "False", reason)], now.status.conditions, now.generation, time.time()
        )
        status = msgspec.structs.replace(
            now.status, observed_generation=now.generation, conditions=made
        )
        self._put(write_status(self._client, now.document, status))

    def refresh(self, key: str) -> None:
        """After a conflict: reads the resource again."""
        now = get(self._client, "KafkaUser", key)
        self._book.forget(key)
        self._put(now)

    def _now(self, user: UserObject) -> UserObject:
        """The resource, with the version of our own last write."""
        return self._book.get(user.key) or user

    def _put(self, document: Document | None) -> None:
        if document is not None:
            self._book.put(document)
