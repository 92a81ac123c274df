"""Credentials of a KafkaUser, from the files of its Secret: client.properties, librdkafka.conf.

Java's clients get references to client.properties, which each client resolves when it is created.
So passwords and keys are in no option, plan or log of Spark. Clients of librdkafka read
librdkafka.conf when they are created.

A client keeps what it read, and after a rotation it cannot connect again. So the driver starts its
queries anew when `revision` changes. The number is an option of Java's clients too: executors keep
clients for queries with the same options, and must not give an old one to a new query.
"""

from __future__ import annotations

from pathlib import Path

from odradek_api.pipeline.job import SpecError

LIBRDKAFKA, PROPERTIES = "librdkafka.conf", "client.properties"
REVISION = "odradek.credentials.revision"  # Kafka's clients ignore options that they do not know
BOOTSTRAP, PROTOCOL, MECHANISM = "bootstrap.servers", "security.protocol", "sasl.mechanism"
PROVIDER = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def librdkafka(at: str, directory: str) -> dict[str, str]:
    path = Path(directory) / LIBRDKAFKA
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}): is it in the user's spec.secret.keys?"
        raise SpecError(f"spec.{at}.user", message) from None
    pairs = (line.partition("=") for line in lines if line)
    return {name: value.replace("\\n", "\n") for name, _, value in pairs}


def java(at: str, directory: str) -> dict[str, str]:
    """Settings of Java's client, with references instead of passwords, keys and certificates."""
    known = librdkafka(at, directory)
    file = Path(directory) / PROPERTIES
    if not file.exists():
        message = f"{file} does not exist: is it in the user's spec.secret.keys?"
        raise SpecError(f"spec.{at}.user", message)
    names = []
    made = {name: known[name] for name in (BOOTSTRAP, PROTOCOL, MECHANISM) if name in known}
    if MECHANISM in known:
        names.append("sasl.jaas.config")
    if "ssl.ca.pem" in known:
        made["ssl.truststore.type"] = "PEM"
        names.append("ssl.truststore.certificates")
    if "ssl.key.pem" in known:
        made["ssl.keystore.type"] = "PEM"
        names += ["ssl.keystore.certificate.chain", "ssl.keystore.key"]
    made[REVISION] = str(revision(directory))
    references = {name: f"${{file:{file}:{name}}}" for name in names}
    return made | references | (PROVIDER if references else {})


def revision(directory: str) -> int:
    """Another number when the files are replaced; 0 while they cannot be read."""
    files = [Path(directory) / name for name in (LIBRDKAFKA, PROPERTIES)]
    try:
        return max((file.stat().st_mtime_ns for file in files if file.exists()), default=0)
    except OSError:
        return 0


def granting(topic: str, operation: str) -> str:
    """The entry of a KafkaUser's spec.acls that grants an operation on a topic."""
    entry = f"{{resource: {{type: topic, name: {topic}}}, operations: [{operation}]}}"
    return f"this entry in its spec.acls grants it: {entry}"
