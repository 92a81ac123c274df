"""UnregisterBroker (64), AddRaftVoter (80), RemoveRaftVoter (81) for kafka-python; see schemas/."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

SCHEMAS = "odradek_operator.admin.schemas"


class UnregisterBrokerRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class UnregisterBrokerResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class AddRaftVoterRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class AddRaftVoterResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class RemoveRaftVoterRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass


class RemoveRaftVoterResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg,misc]
    pass
