"""AlterUserScramCredentials: sets and deletes the SCRAM credentials of users.

A request may name a user only once, even with two mechanisms, as in Apache Kafka. Users with an
error do not keep the others from being changed.
"""

from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from odradek_broker.metadata.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    credential_of,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

TWICE = "A user credential cannot be altered twice in the same request"


def alter_user_scram_credentials(image: MetadataImage, request: Struct) -> ControllerResult[Struct]:
    deletions: dict[str, MetadataRecord] = {}
    upsertions: dict[str, MetadataRecord] = {}
    errors: dict[str, KafkaError] = {}
    for deletion in request.deletions:
        name = deletion.name
        if name in errors:
            continue
        try:
            if deletions.pop(name, None) is not None:
                raise KafkaError(ErrorCode.duplicate_resource, TWICE)
            deletions[name] = _deleted(image, deletion)
        except KafkaError as error:
            errors[name] = error
    for upsertion in request.upsertions:
        name = upsertion.name
        if name in errors:
            continue
        try:
            if deletions.pop(name, None) is not None or upsertions.pop(name, None) is not None:
                raise KafkaError(ErrorCode.duplicate_resource, TWICE)
            upsertions[name] = _upserted(upsertion)
        except KafkaError as error:
            errors[name] = error
    results = [
        Struct(user=name, error_code=ErrorCode.none, error_message=None)
        for name in (*deletions, *upsertions)
    ]
    results += [
        Struct(user=name, error_code=error.code, error_message=error.message)
        for name, error in errors.items()
    ]
    return ControllerResult([*deletions.values(), *upsertions.values()], Struct(results=results))


def _deleted(image: MetadataImage, deletion: Struct) -> MetadataRecord:
    mechanism = _mechanism(deletion)
    if image.scram.credential(mechanism, deletion.name) is None:
        raise KafkaError(
            ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
        )
    return RemoveUserScramCredentialRecord(deletion.name, mechanism)


def _upserted(upsertion: Struct) -> MetadataRecord:
    mechanism = _mechanism(upsertion)
    iterations = upsertion.iterations
    if iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too many iterations")
    salted = bytes(upsertion.salted_password)
    made = credential_of(mechanism, salted, bytes(upsertion.salt), iterations)
    return UserScramCredentialRecord(
        upsertion.name, mechanism, made.salt, made.stored_key, made.server_key, made.iterations
    )


def _mechanism(change: Struct) -> ScramMechanism:
    if not change.name:
        raise KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    try:
        return ScramMechanism(change.mechanism)
    except ValueError:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism") from None
