"""Users, quotas and delegation tokens of the simulated cluster: an operator changes them at random.

After the heal every broker must have the same credentials, quotas and tokens: a broker with an old
password, or with a token that was removed, would accept a client that the others refuse. Tokens
that have expired are removed by the controller, whichever node that is.
"""

from random import Random

from odradek_broker.metadata.delegation_tokens import TokenKey
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.model.principal import USER, Principal
from odradek_protocol.messages.struct import Struct

USERS = ("alice", "bob", "carol")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")
KEY = "key of the simulation"
CHECK_INTERVAL_MS = 1_000
TOKEN_SETTINGS = {
    "delegation.token.secret.key": KEY,
    "delegation.token.max.lifetime.ms": "6000",
    "delegation.token.expiry.time.ms": "3000",
    "delegation.token.expiry.check.interval.ms": str(CHECK_INTERVAL_MS),
}


def random_change(rng: Random, image: MetadataImage) -> tuple[str, Struct, Principal | None]:
    """The name of a request to the controller, the request, and the client if it matters. It may
    be refused."""
    user = rng.choice(USERS)
    removes = rng.random() < 0.3
    kind = rng.random()
    if kind < 0.3:
        mechanism = rng.choice((1, 2))
        deletions = [Struct(name=user, mechanism=mechanism)]
        upsertion = Struct(
            name=user,
            mechanism=mechanism,
            iterations=4096,
            salt=rng.randbytes(8),
            salted_password=rng.randbytes(32),
        )
        users = Struct(
            deletions=deletions if removes else [], upsertions=[] if removes else [upsertion]
        )
        return "alter_user_scram_credentials", users, None
    if kind < 0.6:
        return *_token_change(rng, image), Principal(USER, user)
    entity = [Struct(entity_type="user", entity_name=rng.choice((user, None)))]
    op = Struct(key=rng.choice(QUOTAS), value=float(rng.randint(1, 9)), remove=removes)
    entries = [Struct(entity=entity, ops=[op])]
    return "alter_client_quotas", Struct(entries=entries, validate_only=False), None


def _token_change(rng: Random, image: MetadataImage) -> tuple[str, Struct]:
    known = sorted(image.tokens)
    if not known or rng.random() < 0.4:
        renewers = [Struct(principal_type=USER, principal_name=rng.choice(USERS))]
        return "create_delegation_token", Struct(
            owner_principal_type=USER,
            owner_principal_name=rng.choice((None, *USERS)),
            renewers=renewers,
            max_lifetime=rng.choice((-1, 500, 5_000)),
        )
    hmac = TokenKey(KEY).hmac_of(rng.choice(known))
    period_ms = rng.choice((-1, 0, 1_000, 10_000))
    if rng.random() < 0.5:
        return "renew_delegation_token", Struct(hmac=hmac, renew_period=period_ms)
    return "expire_delegation_token", Struct(hmac=hmac, expiry_time_period=period_ms)


def disagreement(image: MetadataImage, other: MetadataImage) -> str | None:
    """Both are at the same offset of the metadata log."""
    if image.scram != other.scram:
        return "SCRAM credentials differ"
    if image.client_quotas != other.client_quotas:
        return f"quotas differ: {image.client_quotas} and {other.client_quotas}"
    if image.tokens != other.tokens:
        return f"delegation tokens differ: {image.tokens} and {other.tokens}"
    return None


def kept_too_long(image: MetadataImage, now_ms: int) -> str | None:
    """A controller that was elected long enough ago has removed every expired token."""
    for token in image.tokens.values():
        if token.is_expired(now_ms - 3 * CHECK_INTERVAL_MS):
            return f"at {now_ms} ms {token} is not removed"
    return None
