"""The users that a new cluster begins with: `odradek.add.scram.file`.

Where every listener requires a login, a user has to exist before the first login. As
`kafka-storage format --add-scram` takes users, one line for each user and mechanism; empty lines
and lines that begin with `#` are skipped:

    SCRAM-SHA-512=[name=admin,password="s3cret, with a comma"]
    SCRAM-SHA-256=[name=ci,iterations=8192,password=other]

A file, because every user of the machine can read command lines. The controller that forms
the cluster writes the credentials into the metadata log as part of the first records; later starts
ignore the file, which may be deleted then. Messages never show a line: it has a password in it.

Brokers that log in to each other with SCRAM need a user too: `with_own_users` adds that of this
broker's own settings, so that no line of the file is needed for it.
"""

import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from odradek_broker.metadata.records import UserScramCredentialRecord
from odradek_broker.metadata.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    make_credential,
)
from odradek_broker.model.config_table import ConfigError
from odradek_broker.security.broker_login import OwnUser

SETTING = "odradek.add.scram.file"
USERS_MAX = 100  # each costs a start some 3 ms; more are added by an admin
FORM = "must be SCRAM-SHA-512=[name=NAME,password=PASSWORD]"
_PAIR = re.compile(r'([a-z]+)=("[^"]*"|[^",\[\]]*)(?:,|$)')


def first_users(file: str, *, is_new: bool) -> list[UserScramCredentialRecord]:
    """The credentials for the users of the file; runs PBKDF2. Raises ConfigError.

    A cluster that is not new may do without the file.
    """
    if not file:
        return []
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        if is_new:
            raise ConfigError(f"{SETTING}: {file} cannot be read: {error.strerror}") from None
        return []
    except UnicodeDecodeError:
        raise ConfigError(f"{SETTING}: {file} is not UTF-8") from None
    found: dict[tuple[str, ScramMechanism], UserScramCredentialRecord] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            record = _user(text)
        except ValueError as error:
            raise ConfigError(f"{SETTING}: {file}:{number}: {error}") from None
        if (record.name, record.mechanism) in found:
            raise ConfigError(
                f"{SETTING}: {file}:{number}: {record.name} has {record.mechanism.label} twice"
            )
        found[record.name, record.mechanism] = record
        if len(found) > USERS_MAX:
            raise ConfigError(f"{SETTING}: {file}: has more than {USERS_MAX} users")
    if is_new and not found:
        raise ConfigError(f"{SETTING}: {file} names no user")
    return list(found.values())


def with_own_users(
    users: Sequence[UserScramCredentialRecord], own_users: Sequence[OwnUser]
) -> list[UserScramCredentialRecord]:
    """Adds the users as which this broker logs in to others. Raises ConfigError."""
    found = {(record.name, record.mechanism): record for record in users}
    for own in own_users:
        name, mechanism = own.login.user, own.mechanism
        record = found.setdefault((name, mechanism), own.record())
        if not own.has_password_of(record):
            raise ConfigError(
                f"{SETTING}: user {name} has another {mechanism.label} password there than in the "
                "sasl.jaas.config with which this broker logs in to others: make them equal"
            )
    return list(found.values())


def _user(text: str) -> UserScramCredentialRecord:
    label, _, rest = text.partition("=")
    mechanism = ScramMechanism.named(label.strip())
    if mechanism is None or not (rest.startswith("[") and rest.endswith("]")):
        raise ValueError(FORM)
    given = _pairs(rest[1:-1])
    iterations = given.pop("iterations", str(ITERATIONS_DEFAULT))
    if given.keys() != {"name", "password"} or not all(given.values()):
        raise ValueError(FORM)
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ValueError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    made = make_credential(
        mechanism, given["password"], secrets.token_bytes(SALT_BYTES), int(iterations)
    )
    return UserScramCredentialRecord(
        given["name"], mechanism, made.salt, made.stored_key, made.server_key, made.iterations
    )


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None or match[1] in pairs:
            raise ValueError(FORM)
        pairs[match[1]] = match[2].strip('"')
        position = match.end()
    return pairs
