"""Log in with a certificate: its private key makes the console's connections to Kafka.

The form is read in memory: aiohttp's own reading of forms puts files on a disk.
"""

from __future__ import annotations

import asyncio

from aiohttp import BodyPartReader, web

from odradek_console.cluster.access import Access
from odradek_console.cluster.certificates import CertificateError, ClientIdentity
from odradek_console.web.guard import SESSIONS
from odradek_console.web.rendering import OPTIONS
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.security.errors import SecurityError

FILE_BYTES_MAX = 256 * 1024  # a key with its chain has some KB
FIELD_BYTES_MAX = 4 * 1024
NO_PROOF = (
    "This listener of the cluster lets everybody in without a certificate, so the console cannot "
    "know who you are. Its administrator has to set ssl.client.auth=required."
)


class LoginRefusedError(Exception):
    """A sentence for the user; nothing of the file is in it."""


async def certificate_access(request: web.Request) -> tuple[Access, str]:
    """The access of the certificate's owner, and where to go. Raises LoginRefusedError."""
    fields = await _fields(request)
    if not fields.get("store"):
        raise LoginRefusedError("Choose a file with your private key and certificate.")
    loop = asyncio.get_running_loop()
    access = await loop.run_in_executor(
        request.app[SESSIONS].threads,
        _access,
        request.app[OPTIONS].access,
        dict(request.app[OPTIONS].transport),
        fields["store"],
        fields.get("password", b""),
    )
    return access, fields.get("next", b"/").decode(errors="replace")


def _access(base: Access, transport: dict[str, str], store: bytes, password: bytes) -> Access:
    try:
        identity = ClientIdentity.of(store, password.decode(errors="replace"))
        access = base.with_certificate(transport, identity)
    except (CertificateError, SecurityError) as error:
        raise LoginRefusedError(str(error)) from None
    if _is_open(base, transport):
        raise LoginRefusedError(NO_PROOF)
    return access


def _is_open(base: Access, transport: dict[str, str]) -> bool:
    """Whether the brokers serve clients without a certificate.

    Then nobody has checked that the user's certificate is real, and the name of anybody else would
    be in the pages and in the audit log.
    """
    nobody = SecuritySettings.from_properties({**transport, "security.protocol": "SSL"})
    with Access(base.bootstrap, nobody).client() as client:
        try:
            client.metadata(())
        except ClientError:
            return False
        return True


async def _fields(request: web.Request) -> dict[str, bytes]:
    """The fields of the form. Raises LoginRefusedError."""
    if request.content_type != "multipart/form-data":
        raise LoginRefusedError("Choose a file with your private key and certificate.")
    found: dict[str, bytes] = {}
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise LoginRefusedError("The form is not valid.")
            most = FILE_BYTES_MAX if part.name == "store" else FIELD_BYTES_MAX
            found[part.name] = await _read(part, most)
    except ValueError:  # also of aiohttp, for a body that is no form
        raise LoginRefusedError("The form is not valid.") from None
    return found


async def _read(part: BodyPartReader, most: int) -> bytes:
    content = bytearray()
    while chunk := await part.read_chunk():
        content += chunk
        if len(content) > most:
            raise LoginRefusedError(f"{part.name}: more than {most // 1024} KB.")
    return bytes(content)
