"""The versions that a broker offers, and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek_protocol.client.errors import UnsupportedApiError
from odradek_protocol.client.settings import Address
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.headers import supported_versions
from odradek_protocol.messages.struct import Struct

SOFTWARE = ("odradek", "1")  # the client's name and version, as a broker's metrics show them


class FeatureRange(NamedTuple):
    min_version: int
    max_version: int


@dataclass(frozen=True)
class Features:
    """Feature → levels: supported by this broker, and finalized by the cluster."""

    supported: Mapping[str, FeatureRange]
    finalized: Mapping[str, FeatureRange]
    finalized_epoch: int


class Versions:
    """One broker's answer to ApiVersions."""

    def __init__(self, address: Address, answer: Struct) -> None:
        self._address = address
        self.known = {one.api_key: range(one.min_version, one.max_version + 1)
                      for one in answer.api_keys}  # fmt: skip
        self.features = Features(
            {f.name: FeatureRange(f.min_version, f.max_version) for f in answer.supported_features},
            {
                f.name: FeatureRange(f.min_version_level, f.max_version_level)
                for f in answer.finalized_features
            },
            answer.finalized_features_epoch,
        )

    def choose(self, api: ApiKey, max_version: int | None = None) -> int:
        """The highest version that both sides have; `max_version` is what the caller can use."""
        ours = supported_versions(api)
        highest = ours[-1] if max_version is None else min(ours[-1], max_version)
        if (theirs := self.known.get(api)) is None:
            raise UnsupportedApiError(f"{self._address} does not offer {api.name}")
        version = min(highest, theirs[-1] if theirs else -1)
        if version < max(ours[0], theirs.start):
            raise UnsupportedApiError(
                f"{self._address} offers {api.name} in versions {theirs.start} to "
                f"{theirs.stop - 1}, this client has {ours[0]} to {highest}: update the older one"
            )
        return version
