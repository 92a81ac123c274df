"""`odradek tokens`: delegation tokens, with which jobs log in instead of with a user's password.

    odradek tokens create --renewer scheduler --login-file job.properties
    odradek --client-config job.properties topics list
    odradek tokens list
    odradek tokens renew ID --period 12h
    odradek tokens expire ID --yes

Whoever has a token's HMAC can log in as its owner. It is printed when the token is created, and by
`list --show-hmac`; `--login-file` writes it into a file that nobody else on this machine can read.
Tokens are named by their id, so no secret has to be typed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm
from odradek_cli.output import print_json, print_listed

if TYPE_CHECKING:
    from odradek_protocol.client.admin.tokens import DelegationToken
    from odradek_protocol.client.kafka_client import KafkaClient

app = typer.Typer(help="Create, list, renew and expire delegation tokens.", no_args_is_help=True)

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
DURATIONS = "90s, 30m, 12h, 7d or PT1H30M"
NOT_ALLOWED = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
DISABLED = "DELEGATION_TOKEN_AUTH_DISABLED"
REMEDIES = {
    NOT_ALLOWED: "log in with a user of SASL or with a client certificate (--client-config); a "
    "client that has logged in with a token gets none",
    DISABLED: "set delegation.token.secret.key to the same secret on all brokers",
}

TokenId = Annotated[str, typer.Argument(help="The id of the token.", metavar="ID")]
LoginFile = Annotated[
    Path | None,
    typer.Option(
        "--login-file",
        metavar="FILE",
        help="Write a new file of settings with which clients log in with the token, instead of "
        "printing the HMAC.",
    ),
]


@app.command()
def create(
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner", metavar="USER", help="Whose token. Default: the user of this login."
        ),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="USER", help="May renew and expire it; may be repeated."),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime",
            help=f"{DURATIONS}. Default and limit: delegation.token.max.lifetime.ms.",
        ),
    ] = None,
    login_file: LoginFile = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a token. It expires after a day (delegation.token.expiry.time.ms), if not renewed."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.tokens import SERVERS_DEFAULT_MS, create_token

    life_ms = _period("--max-lifetime", max_lifetime, SERVERS_DEFAULT_MS)
    with connect(bootstrap) as client, _new_file(login_file) as file, _about("a new token"):
        token = create_token(client, owner, renewer or (), life_ms)
        if file is not None:
            file.write(_login_settings(token))
    shown = _row(token, show_hmac=login_file is None)
    if as_json:
        print_json(shown)
    else:
        print("\n".join(f"{name}: {value}" for name, value in shown.items()))


@app.command("list")
def list_(
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="USER", help="Only tokens that concern these users."),
    ] = None,
    show_hmac: Annotated[
        bool, typer.Option("--show-hmac", help="Show the secrets of the tokens too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the tokens that you own, have requested or may renew, and those that ACLs show you."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.tokens import list_tokens

    with connect(bootstrap) as client, _about("tokens"):
        found = list_tokens(client, owner)
    rows = [_row(token, show_hmac) for token in found]
    print_listed(rows, as_json, list(rows[0]) if rows else [], "There are no tokens.")


@app.command()
def renew(
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            help=f"{DURATIONS} from now. Default and limit: delegation.token.expiry.time.ms.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Renew a token that you own or may renew; never beyond its maximum lifetime."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.tokens import SERVERS_DEFAULT_MS, renew_token

    period_ms = _period("--period", period, SERVERS_DEFAULT_MS)
    with connect(bootstrap) as client, _about(f"token {token_id}"):
        expires_ms = renew_token(client, _found(client, token_id).hmac, period_ms)
    _print_expiry(token_id, expires_ms, as_json=as_json)


@app.command()
def expire(
    token_id: TokenId,
    after: Annotated[
        str | None, typer.Option("--after", help=f"{DURATIONS} from now. Default: at once.")
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """End a token that you own or may renew. Connections that are open stay for its old time."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.tokens import AT_ONCE_MS, expire_token

    period_ms = _period("--after", after, AT_ONCE_MS)
    if after is None:
        confirm(f"Remove token {token_id}?", yes)
    with connect(bootstrap) as client, _about(f"token {token_id}"):
        expires_ms = expire_token(client, _found(client, token_id).hmac, period_ms)
    _print_expiry(token_id, expires_ms, as_json=as_json)


def _found(client: KafkaClient, token_id: str) -> DelegationToken:
    from odradek_protocol.client.admin.tokens import list_tokens

    for token in list_tokens(client):
        if token.token_id == token_id:
            return token
    raise CliError(
        f"token {token_id}: there is no such token, or this user may not see it "
        "(`odradek tokens list`)"
    )


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Errors of the client become a sentence about `what`, with what to do."""
    from odradek_protocol.client.errors import BrokerError, ClientError

    try:
        yield
    except BrokerError as error:
        remedy = REMEDIES.get(error.name)
        raise CliError(f"{what}: {error}" + (f": {remedy}" if remedy else "")) from error
    except ClientError as error:
        raise CliError(f"{what}: {error}") from error


def _period(option: str, text: str | None, default_ms: int) -> int:
    from odradek_cli.reading import parse_duration_ms

    return default_ms if text is None else parse_duration_ms(text, option)


def _row(token: DelegationToken, show_hmac: bool) -> dict[str, object]:
    shown: dict[str, object] = {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": ", ".join(token.renewers),
        "issued": _time(token.issued_ms),
        "expires": _time(token.expires_ms),
        "max": _time(token.max_ms),
    }
    return {**shown, "hmac": token.password} if show_hmac else shown


def _print_expiry(token_id: str, expires_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"token": token_id, "expires": _time(expires_ms)})
    else:
        print(f"Token {token_id} expires at {_time(expires_ms)}.")


def _time(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


@contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """Opened before the token is created, so that no secret is lost; removed after an error."""
    if path is None:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"--login-file {path}: {error.strerror}; name a new file") from error
    with open(descriptor, "w") as file:
        try:
            yield file
        except BaseException:
            path.unlink()
            raise


def _login_settings(token: DelegationToken) -> str:
    """Those of this login that concern the connection, and the token in place of the user."""
    from odradek_cli import session

    settings = {
        name: value
        for name, value in session.current().settings.items()
        if name.startswith(("ssl.truststore.", "ssl.endpoint."))
    }
    protocol = session.current().settings.get("security.protocol", "").upper()
    settings["security.protocol"] = "SASL_SSL" if protocol.endswith("SSL") else "SASL_PLAINTEXT"
    settings["sasl.mechanism"] = "SCRAM-SHA-512"
    settings["sasl.jaas.config"] = (
        f'{SCRAM_MODULE} required username="{token.token_id}" password="{token.password}" '
        'tokenauth="true";'
    )
    return "".join(f"{name}={value}\n" for name, value in settings.items())
