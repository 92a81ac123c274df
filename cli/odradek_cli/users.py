"""`odradek users`: users with a password (SASL/SCRAM) of a cluster.

    odradek users create alice                    asks for the password twice
    odradek users password alice < secret.txt     from a pipe or a file: its first line
    odradek users create ci --password-file /run/secrets/ci
    odradek users list
    odradek users delete alice --yes

The password does not leave this machine: the cluster gets salted keys that PBKDF2 makes of it.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.errors import CliError, UsageError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm
from odradek_cli.output import print_json, print_listed, remarks

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient

app = typer.Typer(
    help="List, create and delete users with a password (SASL/SCRAM).", no_args_is_help=True
)


class Mechanism(StrEnum):
    sha256 = "SCRAM-SHA-256"
    sha512 = "SCRAM-SHA-512"


User = Annotated[str, typer.Argument(help="Name of the user.", metavar="USER")]
WithMechanism = Annotated[Mechanism, typer.Option("--mechanism", help="How clients log in.")]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=4096, max=16384, help="Iterations of PBKDF2; more are slower."
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="File whose first line is the password.", exists=True),
]
Password = Annotated[
    str | None,
    typer.Option("--password", help="Visible to others in process lists: prefer the alternatives."),
]
DEFAULT_ITERATIONS = 8192


@app.command("list")
def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List users with their mechanisms. Passwords are not stored, so they cannot be shown."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin import users

    with connect(bootstrap) as client, about("users"):
        listed = users.list_users(client)
    found = [
        {"user": user, "mechanism": _label(mechanism), "iterations": iterations}
        for user, mechanisms in sorted(listed.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    print_listed(found, as_json, ["user", "mechanism", ">iterations"], "There are no users.")


@app.command()
def create(
    user: User,
    mechanism: WithMechanism = Mechanism.sha512,
    iterations: Iterations = DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
    password: Password = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a user. Refused if the user exists: `odradek users password` changes a password."""
    from odradek_cli.client import about, connect

    with connect(bootstrap) as client, about(f"user {user}"):
        if mechanism in _mechanisms(client, user):
            raise CliError(
                f"user {user} has a {mechanism} password already: change it with "
                f"`odradek users password {user}`"
            )
        _set(client, user, mechanism, iterations, _read_password(password, password_file))
    _print_done("Created", user, mechanism, as_json=as_json)


@app.command("password")
def change_password(
    user: User,
    mechanism: WithMechanism = Mechanism.sha512,
    iterations: Iterations = DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
    password: Password = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change a user's password. Connections that are open stay open."""
    from odradek_cli.client import about, connect

    with connect(bootstrap) as client, about(f"user {user}"):
        if mechanism not in _mechanisms(client, user):
            raise CliError(
                f"user {user} has no {mechanism} password: create it with "
                f"`odradek users create {user}`"
            )
        _set(client, user, mechanism, iterations, _read_password(password, password_file))
    _print_done("Changed the password of", user, mechanism, as_json=as_json)


@app.command()
def delete(
    user: User,
    mechanism: Annotated[
        Mechanism | None, typer.Option("--mechanism", help="Only this mechanism. Default: all.")
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete a user, who can then not log in any more. Open connections stay open."""
    from odradek_cli.client import about, connect
    from odradek_protocol.client.admin.users import delete_credentials

    confirm(f"Delete user {user}?", yes)
    with connect(bootstrap) as client, about(f"user {user}"):
        known = _mechanisms(client, user)
        doomed = known if mechanism is None else [mechanism]
        if not known or not set(doomed) <= set(known):
            raise CliError(f"user {user}: there is no such user, or not with {mechanism}")
        delete_credentials(client, user, map(_number, doomed))
    if as_json:
        print_json({"deleted": user, "mechanisms": doomed})
    else:
        print(f"Deleted user {user} ({', '.join(doomed)}).")


def _set(
    client: KafkaClient, user: str, mechanism: Mechanism, iterations: int, password: str
) -> None:
    import secrets

    from odradek_broker.metadata.scram import SALT_BYTES, ScramMechanism, salted_password
    from odradek_protocol.client.admin.users import SaltedPassword, set_password

    number, salt = _number(mechanism), secrets.token_bytes(SALT_BYTES)
    salted = salted_password(ScramMechanism(number), password, salt, iterations)
    set_password(client, user, SaltedPassword(number, iterations, salt, salted))


def _mechanisms(client: KafkaClient, user: str) -> list[Mechanism]:
    from odradek_protocol.client.admin.users import list_users as described

    return [Mechanism(_label(number)) for number in sorted(described(client).get(user, {}))]


def _number(mechanism: Mechanism) -> int:
    from odradek_broker.metadata.scram import ScramMechanism

    found = ScramMechanism.named(mechanism.value)
    assert found is not None
    return int(found)


def _label(number: int) -> str:
    from odradek_broker.metadata.scram import ScramMechanism

    return ScramMechanism(number).label


def _read_password(given: str | None, file: Path | None) -> str:
    """From the option, the file, the terminal (typed twice) or the first line of stdin."""
    if given is not None:
        if file is not None:
            raise UsageError("give --password or --password-file, not both")
        remarks().print(
            "odradek: --password is visible in the process list and in the shell's history; "
            "prefer the prompt, stdin or --password-file"
        )
        password = given
    elif file is not None:
        password = _first_line(file.read_text())
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = _first_line(sys.stdin.read())
    if not password:
        raise CliError("the password is empty")
    return password


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].removesuffix("\r")


def _print_done(done: str, user: str, mechanism: Mechanism, *, as_json: bool) -> None:
    if as_json:
        print_json({"user": user, "mechanism": mechanism.value})
    else:
        print(f"{done} user {user} ({mechanism}).")
