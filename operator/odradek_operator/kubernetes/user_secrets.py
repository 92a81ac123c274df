"""The Secrets of KafkaUsers at the API server.

A Secret is read by its name in every pass: the operator may neither list nor watch Secrets. One
that carries no annotation of this KafkaUser belongs to another owner and is never written.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import Secret

from odradek_api.base import API_VERSION, GROUP
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.objects import CONFLICT, NOT_FOUND, ChangedMeanwhileError
from odradek_operator.reconcile.users import SecretError
from odradek_operator.security.credentials import Credentials, Stored
from odradek_operator.security.users import DesiredUser

USER_ANNOTATION = f"{GROUP}/kafka-user"  # "namespace/name" of the KafkaUser
ITERATIONS_ANNOTATION = f"{GROUP}/scram-iterations"
ROTATION_ANNOTATION = f"{GROUP}/rotation"
MANAGED_BY = "app.kubernetes.io/managed-by"
USER_LABEL = f"{GROUP}/kafka-user"
REFUSED = (400, 403, 422)  # missing rights, a quota or a policy, an invalid name


class UserSecrets:
    """The port `Secrets` of reconcile/users.py."""

    def __init__(self, client: Client, uids: Mapping[str, str]) -> None:
        self._client = client
        self._uids = uids  # KafkaUser → its uid

    def find(self, name: str) -> Stored | None:
        found = self._get(name)
        if found is None:
            return None
        annotations = (found.metadata.annotations if found.metadata else None) or {}
        iterations = annotations.get(ITERATIONS_ANNOTATION, "")
        return Stored(
            {key: base64.b64decode(value) for key, value in (found.data or {}).items()},
            annotations.get(USER_ANNOTATION, ""),
            int(iterations) if iterations.isdecimal() else 0,
            annotations.get(ROTATION_ANNOTATION, ""),
        )

    def password(self, name: str, key: str) -> str | None:
        found = self._get(name)
        labels = (found.metadata.labels if found and found.metadata else None) or {}
        if labels.get(MANAGED_BY) == names.FIELD_MANAGER:
            # otherwise a user could copy a CA's key or another user's password by naming it
            return None
        try:
            text = base64.b64decode(((found.data if found else None) or {})[key]).decode()
        except (KeyError, UnicodeDecodeError, binascii.Error):
            return None
        return text.removesuffix("\n")

    def write(self, user: DesiredUser, data: Mapping[str, bytes], credentials: Credentials) -> None:
        namespace, _, name = user.secret.partition("/")
        owner_namespace, _, owner_name = user.owner.partition("/")
        owners = []
        if namespace == owner_namespace:  # an owner in another namespace is not possible
            uid = self._uids[user.owner]
            owners = [OwnerReference(API_VERSION, "KafkaUser", owner_name, uid)]
        annotations = {USER_ANNOTATION: user.owner, ROTATION_ANNOTATION: credentials.rotation}
        if credentials.iterations:
            annotations[ITERATIONS_ANNOTATION] = str(credentials.iterations)
        made = Secret(
            metadata=ObjectMeta(
                name=name,
                namespace=namespace,
                labels={USER_LABEL: owner_name[:63].rstrip("-."),
                        MANAGED_BY: names.FIELD_MANAGER},
                annotations=annotations,
                ownerReferences=owners,
            ),
            type="Opaque",
            data={key: base64.b64encode(value).decode() for key, value in data.items()},
        )  # fmt: skip
        before = self._get(user.secret)
        try:
            if before is None:
                self._client.create(made, field_manager=names.FIELD_MANAGER)
            else:
                assert made.metadata is not None
                assert before.metadata is not None
                made.metadata.resourceVersion = before.metadata.resourceVersion
                self._client.replace(made, field_manager=names.FIELD_MANAGER)
        except ApiError as error:
            raise _understood(error, user.secret) from error

    def remove(self, name: str) -> None:
        namespace, _, own = name.partition("/")
        try:
            self._client.delete(Secret, own, namespace=namespace)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise _understood(error, name) from error

    def _get(self, name: str) -> Secret | None:
        namespace, _, own = name.partition("/")
        try:
            return self._client.get(Secret, own, namespace=namespace)
        except ApiError as error:
            if error.status.code == NOT_FOUND:
                return None
            raise _understood(error, name) from error


def _understood(error: ApiError, name: str) -> Exception:
    """A refusal of the API server concerns this user only; other errors end the pass."""
    if error.status.code == CONFLICT:
        return ChangedMeanwhileError("Secret", name)
    if error.status.code in REFUSED or error.status.code == NOT_FOUND:  # no such namespace
        return SecretError(f"Secret {name}: {error.status.message}")
    return error
