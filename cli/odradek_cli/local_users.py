"""Credentials of KafkaUsers of the local runtime: `odradek local credentials`, and `--user`.

odradek local credentials billing -f examples/secure > billing.properties
odradek --user billing -f examples/secure topics list
"""

from __future__ import annotations

from pathlib import Path

from odradek_cli.errors import CliError, UsageError

PROPERTIES = "client.properties"


def credentials_file(user: str, files: list[Path], state: Path | None, key: str) -> Path:
    """The file of this entry in the user's Secret; the errors name the remedy."""
    from odradek_api.base import InvalidManifestError
    from odradek_api.parse import load
    from odradek_cli.local import state_directory
    from odradek_operator.local.secrets import secret_of
    from odradek_operator.security.users import build_user

    try:
        declared = [build_user(one) for one in load(files) if one.kind == "KafkaUser"]
    except InvalidManifestError as refused:
        raise CliError(str(refused)) from None
    wanted = [one for one in declared if user in (one.owner, one.owner.partition("/")[2])]
    if not wanted:
        known = ", ".join(sorted(one.owner for one in declared)) or "none"
        raise UsageError(f"user {user}: no KafkaUser of the manifests has this name; they have: "
                         f"{known}")  # fmt: skip
    if len(wanted) > 1:
        named = " and ".join(one.owner for one in wanted)
        raise UsageError(f"user {user}: which one of {named}? Give the namespace too")
    (found,) = wanted
    secrets, own = secret_of(state_directory(files, state), found.secret)
    path = secrets.path(own, key)
    if path.exists():
        return path
    if not secrets.read([own]):
        raise CliError(
            f"KafkaUser {found.owner} has no credentials yet: `odradek local up` makes them, and "
            "`odradek local status` shows what it waits for"
        )
    raise CliError(
        f"the Secret of KafkaUser {found.owner} has no {key}: add it to spec.secret.keys"
    )
