"""Messages of strangers that are as long as they may be, and made to be hard to read.

The login runs before anything is known about the client, on the event loop or with the lock of the
interpreter: whatever takes a second here stops the broker for a second.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek_broker.handlers.api_versions import SOFTWARE_NAME
from odradek_broker.security.sasl.mechanism import SaslError
from odradek_broker.security.sasl.oauthbearer import OauthBearer, TokenError
from odradek_broker.security.sasl.plain import Plain
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.scram import parse_client_final, parse_client_first

BYTES = 128 * 1024  # a quarter of sasl.server.max.receive.size, to save time
# Parts that a message repeats: each is matched by more than one part of some careless expression.
PARTS = (",x=1", ",xy=1", ",p=A", ",", ",,", "=", "a", " ", "\x01", "a=b\x01", "auth=Bearer x\x01")
BEGINNINGS = {
    "SCRAM, first": ("n,,n=a,r=b", "n,a=b,n=c,r=d", "n,,n=", ""),
    "SCRAM, final": ("c=biws,r=x", "c=", "c=biws,r=x,p=AAAA", ""),
    "OAUTHBEARER": ("n,,\x01", "n,a=b,\x01auth=Bearer ", "n,,\x01auth=Bearer", ""),
    "PLAIN": ("", "\0", "a\0"),
    "ApiVersions": ("", "a"),
}
ENDS = ("", ",", "!", "\x01", "\x01\x01", "\0")


def refuse(token: str, now_ms: int) -> None:
    raise TokenError("not accepted")


def read_software_name(message: bytes) -> None:
    SOFTWARE_NAME.fullmatch(message.decode())


READERS: dict[str, Callable[[bytes], object]] = {
    "SCRAM, first": parse_client_first,
    "SCRAM, final": parse_client_final,
    "OAUTHBEARER": lambda data: OauthBearer(refuse, print, slow=False).step(data, 0),  # type: ignore[arg-type]
    "PLAIN": lambda data: Plain({"alice": "x"}).step(data, 0),
    "ApiVersions": read_software_name,
}


@pytest.mark.timeout(120)  # a second; before the expressions were made linear: for ever
@pytest.mark.parametrize("kind", READERS)
def test_a_long_message_is_read_in_linear_time(kind: str) -> None:
    for beginning in BEGINNINGS[kind]:
        for part in PARTS:
            for end in ENDS:
                repeated = (BYTES - len(beginning) - len(end)) // len(part)
                message = f"{beginning}{part * repeated}{end}".encode()
                try:
                    READERS[kind](message)
                except (SaslError, SecurityError):
                    continue


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer abc\x01\x01",
        b"n,a=alice,\x01host=h\x01auth=bearer  abc\x01port=1=2\x01\x01",
    ],
)
def test_what_clients_send_is_still_read(message: bytes) -> None:
    seen: list[str] = []

    def note(token: str, now_ms: int) -> None:
        seen.append(token)
        raise TokenError("noted")

    OauthBearer(note, lambda _: None, slow=False).step(message, 0)  # type: ignore[arg-type]
    assert seen == ["abc"]


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer abd\x01\x01",  # which one?
        b"n,,\x01auth=Bearer a c\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01novalue\x01\x01",
        b"n,,\x01\x01auth=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"\x01\x01",
        b"",
    ],
)
def test_messages_that_are_not_well_formed(message: bytes) -> None:
    with pytest.raises(SaslError, match="Invalid OAUTHBEARER client first message"):
        OauthBearer(refuse, print, slow=False).step(message, 0)  # type: ignore[arg-type]


def test_extensions_of_a_scram_message() -> None:
    first = parse_client_first(b"n,,n=a,r=b,tokenauth=true,x=1")
    assert first.by_token
    assert parse_client_final(b"c=biws,r=x,x=1,yy=2,p=AAAA").nonce == "x"
