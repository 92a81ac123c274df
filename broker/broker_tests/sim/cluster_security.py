"""Users and quotas of the simulated cluster: an operator changes them at random.

After the heal every broker must have the same credentials and quotas: a broker that kept an old
password would let somebody in whom the others refuse.
"""

from random import Random

from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.messages.struct import Struct

USERS = ("alice", "bob", "carol")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")


def random_change(rng: Random) -> tuple[str, Struct]:
    """The name of a request to the controller, and the request. It may be refused."""
    user = rng.choice(USERS)
    removes = rng.random() < 0.3
    if rng.random() < 0.5:
        mechanism = rng.choice((1, 2))
        deletions = [Struct(name=user, mechanism=mechanism)]
        upsertion = Struct(
            name=user,
            mechanism=mechanism,
            iterations=4096,
            salt=rng.randbytes(8),
            salted_password=rng.randbytes(32),
        )
        return "alter_user_scram_credentials", Struct(
            deletions=deletions if removes else [], upsertions=[] if removes else [upsertion]
        )
    entity = [Struct(entity_type="user", entity_name=rng.choice((user, None)))]
    op = Struct(key=rng.choice(QUOTAS), value=float(rng.randint(1, 9)), remove=removes)
    entries = [Struct(entity=entity, ops=[op])]
    return "alter_client_quotas", Struct(entries=entries, validate_only=False)


def disagreement(image: MetadataImage, other: MetadataImage) -> str | None:
    """Both are at the same offset of the metadata log."""
    if image.scram != other.scram:
        return "SCRAM credentials differ"
    if image.client_quotas != other.client_quotas:
        return f"quotas differ: {image.client_quotas} and {other.client_quotas}"
    return None
