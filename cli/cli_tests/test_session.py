"""How a command finds its cluster: options in front and after, environment, profiles, files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from cli_tests.conftest import Odradek
from odradek_cli.errors import UsageError
from odradek_cli.librdkafka import security_settings
from odradek_cli.properties import HIDDEN, parse_properties
from odradek_testkit.engines import RunningBroker

WRONG = "127.0.0.1:1"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Where the fixture `odradek` makes the command look for its profiles."""
    return tmp_path / "config" / "odradek" / "config.toml"


def test_version(odradek: Odradek) -> None:
    assert odradek("--version").stdout.startswith("odradek 0.")


def test_the_option_in_front_wins_over_the_environment(
    odradek: Odradek, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", WRONG)
    odradek("--bootstrap", broker.bootstrap, "topics", "list")
    odradek("-b", WRONG, "topics", "list", "--bootstrap", broker.bootstrap)
    assert WRONG in odradek("topics", "list", code=1).stderr


def test_profiles(
    odradek: Odradek, broker: RunningBroker, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ODRADEK_BOOTSTRAP")
    assert "There are no profiles" in odradek("profile", "list").stdout
    odradek("profile", "set", "broken", "bootstrap", WRONG)
    odradek("profile", "set", "good", "bootstrap", broker.bootstrap)
    assert WRONG in odradek("topics", "list", code=1).stderr, "the first profile is in use"
    odradek("--profile", "good", "topics", "list")
    monkeypatch.setenv("ODRADEK_PROFILE", "good")
    odradek("topics", "list")
    monkeypatch.delenv("ODRADEK_PROFILE")
    odradek("profile", "use", "good")
    odradek("topics", "list")
    listed = json.loads(odradek("profile", "list", "--json").stdout)
    assert [(p["name"], p["current"]) for p in listed] == [("broken", False), ("good", True)]
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", WRONG)
    odradek("topics", "list", code=1)
    odradek("--profile", "good", "topics", "list")  # what is typed wins over the environment
    odradek("profile", "delete", "good")
    assert "good" not in odradek("profile", "list").stdout
    unknown = odradek("--profile", "good", "topics", "list", code=2).stderr
    assert "profile good: there is no such profile" in unknown
    assert unknown.strip().endswith("it has: broken")
    assert "current" not in config.read_text()
    assert os.stat(config).st_mode & 0o077 == 0


def test_a_change_keeps_comments_and_refuses_a_broken_file(odradek: Odradek, config: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('# mine\ncurrent = "a"\n[profiles.a] # one\nbootstrap = "x:1"\n'
                      '[profiles.b]\nbootstrap = "y:1"')  # fmt: skip
    odradek("profile", "set", "a", "bootstrap", "z:1")
    odradek("profile", "set", "b", "client-config", 'with "quotes" \\ and more')
    odradek("profile", "use", "b")
    assert config.read_text() == (
        '# mine\ncurrent = "b"\n[profiles.a] # one\nbootstrap = "z:1"\n'
        '[profiles.b]\nclient-config = "with \\"quotes\\" \\\\ and more"\nbootstrap = "y:1"\n'
    )
    for text, why in [
        ("[profiles", "is not valid TOML"),
        ('[profiles.a]\nbootstap = "x:1"', "profiles.a.bootstap: unknown; expected bootstrap or"),
        ("[profiles.a]\nbootstrap = 1", "profiles.a.bootstrap: expected a string"),
        ('current = "c"', "current: there is no profile c"),
        ('profile = "c"', "profile: unknown"),
    ]:
        config.write_text(text)
        refused = odradek("profile", "list", code=1).stderr
        assert refused.startswith(f"odradek: {config}: ")
        assert why in refused
        assert refused.count("\n") == 1


def test_settings_of_the_client(
    odradek: Odradek, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ODRADEK_BOOTSTRAP")
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={broker.bootstrap}\nsecurity.protocol=PLAINTEXT\nacks=all\n"
    )
    odradek("--client-config", str(file), "topics", "list")
    monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(file))
    odradek("topics", "list")
    monkeypatch.delenv("ODRADEK_CLIENT_CONFIG")
    odradek("profile", "set", "p", "client-config", str(file))
    odradek("topics", "list")
    file.write_text("request.timeout.ms=soon\n")
    refused = odradek(
        "--client-config", str(file), "-b", broker.bootstrap, "topics", "list", code=2
    )
    assert "request.timeout.ms=soon: expected milliseconds" in refused.stderr
    missing = odradek("--client-config", str(tmp_path / "no"), "topics", "list", code=2)
    assert "No such file" in missing.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Path]]:
    """A broker whose only listener is SASL_SSL, and the settings of a client for it."""
    directory = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    (directory / "key.pem").write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    jaas = 'PlainLoginModule required username="admin" password="hush" user_admin="hush";'
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config":
            f"org.apache.kafka.common.security.plain.{jaas}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "key.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }  # fmt: skip
    file = directory / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={directory}/ca.pem\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username="admin" password="hush";\n'
    )
    with RunningBroker(settings, directory=directory / "broker") as running:
        yield running, file


def test_tls_and_sasl(
    odradek: Odradek, secured: tuple[RunningBroker, Path], tmp_path: Path
) -> None:
    """The admin client and librdkafka, from one file; secrets are never printed."""
    broker, file = secured
    at = ("--client-config", str(file), "-b", broker.bootstrap)
    odradek(*at, "topics", "create", "t", "-p", "1")
    odradek(*at, "produce", "t", stdin="hello\n")
    assert odradek(*at, "consume", "t", "-o", "beginning", "--until-end").stdout == "hello\n"
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(file.read_text().replace("hush", "loud"))
    refused = odradek(
        "--client-config", str(wrong), "-b", broker.bootstrap, "topics", "list", code=1
    )
    assert "loud" not in refused.stderr
    assert refused.stderr.count("\n") == 1
    odradek("profile", "set", "p", "client-config", str(file))
    for how in ((), ("--json",)):
        shown = odradek("profile", "show", *how).stdout
        assert "SASL_SSL" in shown
        assert HIDDEN in shown
        assert "hush" not in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("security.protocol=TLS", "security.protocol TLS: must be PLAINTEXT"),
        ("security.protocol=SASL_PLAINTEXT", "needs sasl.mechanism"),
    ],
)
def test_wrong_security_is_refused_by_name(
    odradek: Odradek, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    refused = odradek("--client-config", str(file), "topics", "list", code=2).stderr
    assert refused.startswith("odradek: --client-config: ")
    assert why in refused


def test_commands_with_clusters_of_their_own_do_not_use_the_profile(
    odradek: Odradek, tmp_path: Path
) -> None:
    odradek("profile", "set", "p", "client-config", str(tmp_path / "missing.properties"))
    assert "missing.properties" in odradek("topics", "list", code=2).stderr
    copy = ("migrate", "--from", WRONG, "--to", WRONG)
    assert "missing.properties" not in odradek(*copy, code=1).stderr
    refused = odradek("--profile", "p", *copy, code=2).stderr
    assert refused.endswith("`odradek migrate` does not use them\n")


def test_settings_unknown_to_librdkafka_are_refused_by_name() -> None:
    given = {"security.protocol": "SSL", "ssl.truststore.type": "JKS"}
    with pytest.raises(UsageError, match=r"ssl\.truststore\.type: produce, consume"):
        security_settings(given)


def test_the_format_of_properties() -> None:
    text = (
        "# comment\n! too\n\n a.b = c d \nx:y\nempty\npath=C\\:\\\\x\n"
        "long=one\\\n   two\nu=\\u00e9\n"
    )
    assert parse_properties(text) == {
        "a.b": "c d ",
        "x": "y",
        "empty": "",
        "path": "C:\\x",
        "long": "onetwo",
        "u": "\u00e9",
    }
