"""The Secrets of one cluster at the API server: read by name, never listed; applied as a whole.

Every Secret belongs to the KafkaCluster, so that it is deleted together with it. A write is one
server-side apply: keys that are no longer wanted are removed by the same request.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

from lightkube import Client, codecs
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Secret

from odradek_api.base import API_VERSION, Resource, owner_reference
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kubernetes import names

NOT_FOUND = 404


class KubernetesSecrets:
    def __init__(self, client: Client, resource: Resource[KafkaClusterSpec]) -> None:
        self._client = client
        self.resource = resource
        self._read: dict[str, Mapping[str, bytes] | None] = {}  # of this pass

    def next_pass(self, resource: Resource[KafkaClusterSpec]) -> None:
        self.resource = resource
        self._read.clear()

    def read(self, wanted: Iterable[str]) -> dict[str, Mapping[str, bytes]]:
        """The Secrets of these names that exist."""
        found = {}
        for name in wanted:
            if name not in self._read:
                self._read[name] = self._get(name)
            if (content := self._read[name]) is not None:
                found[name] = content
        return found

    def write(self, name: str, content: Mapping[str, bytes]) -> None:
        resource = self.resource
        owner = owner_reference(API_VERSION, "KafkaCluster", resource.name, resource.uid)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": resource.namespace,
                "labels": names.labels(resource.name),
                "ownerReferences": [owner],
            },
            "type": "Opaque",
            "data": {key: b64encode(value).decode() for key, value in content.items()},
        }
        self._client.apply(codecs.from_dict(secret), field_manager=names.FIELD_MANAGER, force=True)
        self._read[name] = dict(content)

    def _get(self, name: str) -> Mapping[str, bytes] | None:
        try:
            found = self._client.get(Secret, name, namespace=self.resource.namespace)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise
            return None
        if found.metadata is not None and found.metadata.deletionTimestamp is not None:
            return None
        return {key: b64decode(value) for key, value in (found.data or {}).items()}
