"""All KafkaUsers by their cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek_api.base import InvalidManifestError, Resource
from odradek_api.kafka_user.spec import KafkaUserSpec
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.parse import parse
from odradek_operator.kubernetes.book import Book, OfCluster, cluster_of, slim
from odradek_operator.kubernetes.objects import USER_FINALIZER, Document, key_of, read_status
from odradek_operator.security.users import DesiredUser, build_user


@dataclass(frozen=True)
class UserObject(OfCluster):
    status: KafkaUserStatus
    resource: Resource[KafkaUserSpec] | None  # None: `problem` says why it is invalid
    authentication: str = "scram-sha-512"  # its type, also of an invalid resource
    problem: str = ""

    @property
    def held(self) -> bool:
        return USER_FINALIZER in (self.document["metadata"].get("finalizers") or ())

    @property
    def wanted(self) -> DesiredUser | None:
        if self.resource is None:
            return None
        return replace(build_user(self.resource), previous_secret=self.status.secret)

    @property
    def withdrawn(self) -> DesiredUser | None:
        """The objects to remove if this user may not exist; None if it manages nothing."""
        if not self.status.principal:
            return None
        return DesiredUser(
            self.key,
            self.status.principal.removeprefix("User:"),
            self.status.secret,
            self.authentication,
            delete=True,
        )


def user_object(document: Document) -> UserObject:
    resource, problem = None, ""
    try:
        resource = parse(document)
    except InvalidManifestError as refused:
        problem = "; ".join(f"{p.field}: {p.message}" for p in refused.problems)
    spec = document.get("spec") or {}
    return UserObject(
        key_of(document),
        cluster_of(document),
        int(document["metadata"]["resourceVersion"]),
        {**slim(document), "kind": "KafkaUser"},
        read_status(document, KafkaUserStatus),
        resource,
        str((spec.get("authentication") or {}).get("type") or "scram-sha-512"),
        problem,
    )


class UserBook(Book[UserObject]):
    def __init__(self) -> None:
        super().__init__(user_object)
