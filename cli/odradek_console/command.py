"""`odradek console`: the options, and the server."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli import session
from odradek_cli.errors import CliError, UsageError
from odradek_cli.extras import needs_extra
from odradek_cli.options import DEFAULT_BOOTSTRAP, Bootstrap

if TYPE_CHECKING:
    from odradek_console.cluster.oidc import OidcSettings
    from odradek_console.cluster.runtime_state import RuntimeSource
    from odradek_console.records.decoding import Schemas
    from odradek_console.web.options import ConsoleOptions
    from odradek_protocol.client.security import SecuritySettings


def console(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the console is served.")
    ] = "127.0.0.1:8080",
    login: Annotated[
        str | None,
        typer.Option(
            "--login",
            metavar="MECHANISM",
            help="How users log in, to act as themselves: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
            "OIDC or CERTIFICATE.",
        ),
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        typer.Option("--oidc-issuer", metavar="URL", help="With --login OIDC: who issues tokens."),
    ] = None,
    oidc_client: Annotated[
        str | None,
        typer.Option("--oidc-client", metavar="ID", help="The console's client ID there."),
    ] = None,
    oidc_secret_file: Annotated[
        Path | None,
        typer.Option(
            "--oidc-secret-file", metavar="FILE", help="Its secret; without one PKCE alone."
        ),
    ] = None,
    oidc_scopes: Annotated[
        str, typer.Option("--oidc-scopes", metavar="SCOPES", help="Separated by spaces.")
    ] = "openid",
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask", metavar="[TOPIC:]a.b", help="Hide this field of JSON values; repeatable."
        ),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="Show records of its schemas as JSON; its login is in --client-config.",
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option("--audit-log", metavar="FILE", help="Append a line for each change."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="PEM", help="Serve HTTPS; with --tls-key.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="PEM")] = None,
    behind_tls_proxy: Annotated[
        bool,
        typer.Option("--behind-tls-proxy", help="A proxy in front of the console has TLS."),
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="A name browsers use; repeatable."),
    ] = None,
    local: Annotated[
        Path | None,
        typer.Option(
            "--local",
            metavar="DIR",
            help="Manifests of a running `odradek local up`: also show its plan and pipelines.",
        ),
    ] = None,
    kubernetes: Annotated[
        str | None,
        typer.Option(
            "--kubernetes",
            metavar="NAMESPACE/NAME",
            help="The KafkaCluster that this is: also show what the operator does and waits for.",
        ),
    ] = None,
    end_with_stdin: Annotated[bool, typer.Option("--end-with-stdin", hidden=True)] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a cluster, its records and its groups in a browser; for any Kafka cluster."""
    with needs_extra("console", "odradek console"):
        import jinja2  # noqa: F401

        from odradek_console.cluster.access import CERTIFICATE, LOGINS, Access
        from odradek_console.records.masking import MaskError, Masks
        from odradek_console.web.options import LOOPBACK, ConsoleOptions
    host, port = _address(listen)
    if login is not None and login not in LOGINS:
        raise UsageError(f"--login {login}: one of {', '.join(LOGINS)}")
    oidc = _oidc(login, oidc_issuer, oidc_client, oidc_secret_file, oidc_scopes)
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    if host not in LOOPBACK:
        if login is None:
            raise UsageError(
                f"--listen {listen}: other machines could act with this console's credentials; "
                "give --login SCRAM-SHA-512 (or PLAIN), or listen on 127.0.0.1"
            )
        if tls_cert is None and not behind_tls_proxy:
            raise UsageError(
                f"--listen {listen}: credentials would cross the network in clear text; give "
                "--tls-cert and --tls-key, or --behind-tls-proxy"
            )
    try:
        masks = Masks.parse(mask or [])
    except MaskError as error:
        raise UsageError(f"--mask: {error}") from None
    if login is None:
        security = session.current().security()
    else:
        security = _transport(session.current().settings)
    transport = _trust(session.current().settings) if login == CERTIFICATE else {}
    runtime = _runtime(local, kubernetes, login)
    options = ConsoleOptions(
        Access(bootstrap, security),
        host,
        port,
        login,
        read_only,
        masks,
        audit_log,
        _tls(tls_cert, tls_key),
        behind_tls_proxy,
        _schemas(schema_registry),
        runtime,
        oidc,
        transport,
        tuple(host_name or ()),
        end_with_stdin,
    )
    _serve(options)


def _runtime(local: Path | None, kubernetes: str | None, login: str | None) -> RuntimeSource | None:
    """Where plans and pipelines are read."""
    if local is not None and kubernetes is not None:
        raise UsageError("--local and --kubernetes: give one of them")
    if local is not None:
        if login is not None:
            raise UsageError("--local: its plans are made with the runtime's rights, not a user's")
        from odradek_cli.local import state_directory
        from odradek_console.cluster.local_state import LocalState

        return LocalState(local, state_directory([local], None))
    if kubernetes is not None:
        namespace, _, name = kubernetes.partition("/")
        if not namespace or not name or "/" in name:
            raise UsageError(f"--kubernetes {kubernetes}: expected NAMESPACE/NAME")
        with needs_extra("operator", "odradek console --kubernetes"):
            from odradek_console.cluster.kubernetes_state import KubernetesState
        from odradek_console.cluster.runtime_state import UnreadableStateError

        try:
            return KubernetesState(namespace, name)
        except UnreadableStateError as error:
            raise CliError(f"--kubernetes {kubernetes}: {error}") from None
    return None


def _schemas(url: str | None) -> Schemas | None:
    if url is None:
        return None
    with needs_extra("schemas", "odradek console --schema-registry"):
        from odradek_console.records.decoding import Schemas, SchemaSettingsError

    try:
        return Schemas.of(url, session.current().settings)
    except SchemaSettingsError as error:
        raise UsageError(f"--schema-registry: {error}") from None


def _address(listen: str) -> tuple[str, int]:
    from odradek_protocol.client.errors import AddressError
    from odradek_protocol.client.settings import Address

    try:
        return Address.parse(listen)
    except AddressError as error:
        raise UsageError(f"--listen: {error}") from None


def _transport(settings: dict[str, str]) -> SecuritySettings:
    """TLS of the client config, without its credentials: users bring their own."""
    from odradek_protocol.client.security import SecuritySettings
    from odradek_protocol.security.errors import SecurityError

    protocol = settings.get("security.protocol", "SASL_PLAINTEXT").upper()
    plain = "SSL" if protocol.endswith("SSL") else "PLAINTEXT"
    try:
        return SecuritySettings.from_properties({**settings, "security.protocol": plain})
    except SecurityError as error:
        raise UsageError(f"--client-config: {error}") from None


def _trust(settings: dict[str, str]) -> dict[str, str]:
    """With which brokers are verified: without keys, which users bring with them."""
    if not settings.get("security.protocol", "").upper().endswith("SSL"):
        raise UsageError(
            "--login CERTIFICATE: brokers see certificates only with TLS; give "
            "security.protocol=SSL and ssl.truststore.location in --client-config"
        )
    own = ("ssl.keystore.", "ssl.key.", "sasl.")
    return {name: value for name, value in settings.items() if not name.startswith(own)}


def _oidc(
    login: str | None, issuer: str | None, client: str | None, secret_file: Path | None, scopes: str
) -> OidcSettings | None:
    if login != "OIDC":
        if issuer or client or secret_file:
            raise UsageError("--oidc-issuer, --oidc-client, --oidc-secret-file: need --login OIDC")
        return None
    if not issuer or not client:
        raise UsageError("--login OIDC needs --oidc-issuer and --oidc-client")
    from odradek_console.cluster.oidc import OidcSettings

    try:
        secret = secret_file.read_text().strip() if secret_file is not None else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--oidc-secret-file {secret_file}: {error}") from None
    if secret == "":
        raise UsageError(f"--oidc-secret-file {secret_file}: the file is empty")
    claim = session.current().settings.get("sasl.oauthbearer.sub.claim.name", "sub")
    found = OidcSettings(issuer, client, secret, scopes, claim)
    try:
        found.check()
    except ValueError as error:
        raise UsageError(str(error)) from None
    return found


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None or key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-cert, --tls-key: {error}") from None
    return context


def _serve(options: ConsoleOptions) -> None:
    import asyncio

    from odradek_console.app import make_app, run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line per request to the API server
    try:
        app = make_app(options)
    except OSError as error:
        raise CliError(f"--audit-log {options.audit_log}: {error.strerror}") from None
    try:
        asyncio.run(run(app, options))
    except OSError as error:
        raise CliError(f"--listen {options.host}:{options.port}: {error.strerror}") from None
