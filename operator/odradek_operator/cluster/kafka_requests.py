"""UnregisterBroker (64) and RemoveRaftVoter (81) as kafka-python messages; see schemas/."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

SCHEMAS = "odradek_operator.cluster.schemas"


class UnregisterBrokerRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class UnregisterBrokerResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class RemoveRaftVoterRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class RemoveRaftVoterResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass
