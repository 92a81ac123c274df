"""KafkaUsers of a local runtime: their Secrets are files in the state directory.

A KafkaUser that is no longer in the manifests is deleted from Kafka; the ledger of the cluster says
which ones there were. `passwordFrom` names a Secret (apiVersion v1) in the manifests.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from odradek_api.base import Resource
from odradek_api.kafka_user.spec import KafkaUserSpec
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.parse import SUFFIXES
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.local.ledger import Ledger, UserEntry
from odradek_operator.local.secrets import secret_of
from odradek_operator.reason import Reason
from odradek_operator.reconcile.users import (
    UNAVAILABLE,
    AssessedUser,
    act_on_user,
    assess_users,
    managed_after,
    user_status,
)
from odradek_operator.security.credentials import Credentials, Stored
from odradek_operator.security.entrance import Entrance
from odradek_operator.security.users import DesiredUser, build_user

ABOUT = "..about.json"

User = Resource[KafkaUserSpec]


class About(msgspec.Struct, rename="camel"):
    """Metadata of a user's Secret; on Kubernetes these are its annotations."""

    owner: str
    iterations: int = 0
    rotation: str = ""


class LocalUserSecrets:
    """The port `Secrets` of reconcile/users.py."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.given: Mapping[str, Mapping[str, str]] = {}  # Secrets of the manifests

    def find(self, name: str) -> Stored | None:
        secrets, own = secret_of(self._state_dir, name)
        content = secrets.read([own]).get(own)
        if content is None:
            return None
        found = dict(content)
        try:
            about = msgspec.json.decode(found.pop(ABOUT, b""), type=About)
        except msgspec.DecodeError:
            return Stored(found)
        return Stored(found, about.owner, about.iterations, about.rotation)

    def password(self, name: str, key: str) -> str | None:
        return self.given.get(name, {}).get(key)

    def write(self, user: DesiredUser, data: Mapping[str, bytes], credentials: Credentials) -> None:
        about = About(user.owner, credentials.iterations, credentials.rotation)
        secrets, own = secret_of(self._state_dir, user.secret)
        secrets.write(own, {**data, ABOUT: msgspec.json.encode(about)})

    def remove(self, name: str) -> None:
        secrets, own = secret_of(self._state_dir, name)
        secrets.remove(own)


@dataclass
class LocalUsers:
    """The users of one cluster."""

    secrets: LocalUserSecrets
    declared: list[User] = field(default_factory=list)
    statuses: dict[str, KafkaUserStatus] = field(default_factory=dict)
    _assessed: list[AssessedUser] = field(default_factory=list)

    def assess(self, ledger: Ledger, entrance: Entrance, admin: KafkaAdmin) -> list[str]:
        """The pending actions, in sentences."""
        before = {entry.owner: entry.secret for entry in ledger.users.values()}
        wanted = [
            replace(build_user(user), previous_secret=before.get(user.key, ""))
            for user in self.declared
        ]
        owners = {one.owner for one in wanted}
        wanted += [
            DesiredUser(
                entry.owner,
                principal.removeprefix("User:"),
                entry.secret,
                entry.authentication,
                delete=True,
            )
            for principal, entry in ledger.users.items()
            if entry.owner not in owners
        ]
        managed = {principal: entry.owner for principal, entry in ledger.users.items()}
        self._assessed = assess_users(wanted, managed, entrance, admin, self.secrets)
        return [f"KafkaUser {a.user.owner}: {line}" for a in self._assessed for line in a.lines]

    def wait(self, why: str) -> None:
        """No broker answers: nothing is concluded."""
        pending = Reason(UNAVAILABLE, why)
        self._assessed = [AssessedUser(build_user(one), problem=pending) for one in self.declared]

    def record(self, ledger: Ledger) -> bool:
        """Notes which users are managed, before acting; returns whether the ledger changed."""
        managed = {principal: entry.owner for principal, entry in ledger.users.items()}
        if any(one.unavailable for one in self._assessed):
            return False
        by_owner = {one.user.owner: one for one in self._assessed}
        after = {}
        for principal, owner in managed_after(managed, self._assessed).items():
            one = by_owner.get(owner)
            known = ledger.users.get(principal)
            if one is not None:
                after[principal] = UserEntry(owner, one.secret_name, one.user.authentication)
            elif known is not None:
                after[principal] = known
        changed = after != ledger.users
        ledger.users = after
        return changed

    def act(self, admin: KafkaAdmin) -> list[str]:
        """Returns the errors, in sentences."""
        failures = []
        for one in self._assessed:
            failed = act_on_user(one, admin, self.secrets)
            failures += [f"KafkaUser {one.user.owner}: {failure}" for failure in failed]
        return failures

    def report(self) -> dict[str, KafkaUserStatus]:
        self.statuses = {
            one.user.owner: user_status(
                one, self.statuses.get(one.user.owner, KafkaUserStatus()), generation=0
            )
            for one in self._assessed
            if not one.user.delete
        }
        return self.statuses


def load_secrets(paths: Iterable[Path]) -> dict[str, dict[str, str]]:
    """The Secrets in manifests, by "namespace/name"; those that cannot be read are left out."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in inside:
            if file.suffix in SUFFIXES and file.is_file():
                try:
                    documents = list(yaml.safe_load_all(file.read_text()))
                except (OSError, UnicodeDecodeError, yaml.YAMLError):
                    continue  # parse.py reports it
                for document in documents:
                    if isinstance(document, dict) and document.get("kind") == "Secret":
                        found |= _secret(document)
    return found


def _secret(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    metadata = document.get("metadata") or {}
    entries = {str(k): str(v) for k, v in (document.get("stringData") or {}).items()}
    for key, value in (document.get("data") or {}).items():
        try:
            entries.setdefault(str(key), base64.b64decode(str(value), validate=True).decode())
        except (binascii.Error, UnicodeDecodeError):
            continue
    return {f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}": entries}
