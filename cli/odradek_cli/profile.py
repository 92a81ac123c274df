"""`odradek profile`: named clusters, so that commands need no --bootstrap.

odradek profile set prod bootstrap kafka-1:9092,kafka-2:9092
odradek profile set prod client-config ~/prod.properties
odradek profile use prod                 from now on; --profile NAME: one command
odradek profile list
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from odradek_cli import profiles
from odradek_cli.errors import CliError
from odradek_cli.options import AsJson
from odradek_cli.output import print_json, print_table

app = typer.Typer(help="Name clusters, and choose one of them.", no_args_is_help=True)


def complete_profile(incomplete: str) -> list[str]:
    try:
        return [name for name in profiles.load().by_name if name.startswith(incomplete)]
    except CliError:
        return []


Name = Annotated[
    str,
    typer.Argument(help="Name of the profile.", metavar="NAME", autocompletion=complete_profile),
]


@app.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; the current one is marked."""
    known = profiles.load()
    if as_json:
        print_json(
            [
                {"name": one.name, "current": one.name == known.current, "bootstrap": one.bootstrap}
                for one in known.by_name.values()
            ]
        )
    elif not known.by_name:
        print(f"There are no profiles in {known.path}; `odradek profile set` makes one.")
    else:
        rows = [
            ("*" if one.name == known.current else "", one.name, one.bootstrap, one.client_config)
            for one in known.by_name.values()
        ]
        print_table(["", "profile", "bootstrap", "client config"], rows)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Default: the current one.", metavar="[NAME]", autocompletion=complete_profile
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a profile with the settings of its client; secrets are hidden."""
    from odradek_cli.properties import read_properties, shown

    known = profiles.load()
    if name is None and known.current is None:
        raise CliError(f"no profile is in use; {known.path} has none, or `current` is not set")
    found = known.get(name or known.current or "")
    settings: dict[str, str] = {}
    if found.client_config is not None:
        settings = read_properties(f"profile {found.name}:", found.client_config)
    settings = {key: shown(key, value) for key, value in settings.items()}
    if as_json:
        described: dict[str, Any] = {
            "name": found.name,
            "bootstrap": found.bootstrap,
            "client_config": None if found.client_config is None else str(found.client_config),
            "settings": settings,
        }
        print_json(described)
        return
    rows = [("profile", found.name), ("bootstrap", found.bootstrap),
            ("client-config", found.client_config)]  # fmt: skip
    print_table(["field", "value"], [*rows, *sorted(settings.items())])


@app.command("set")
def set_field(
    name: Name,
    field: Annotated[str, typer.Argument(metavar="bootstrap|client-config")],
    value: Annotated[str, typer.Argument(metavar="VALUE")],
) -> None:
    """Set a field of a profile; the first profile becomes the current one."""
    after = profiles.set_field(name, field, value)
    print(f"Set {field} of profile {name} in {after.path}.")


@app.command()
def use(name: Name) -> None:
    """Use this profile from now on."""
    profiles.use(name)
    print(f"Using profile {name}.")


@app.command()
def delete(name: Name) -> None:
    """Delete a profile."""
    profiles.delete(name)
    print(f"Deleted profile {name}.")
