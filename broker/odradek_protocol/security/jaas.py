r"""`sasl.jaas.config` as in Kafka's files: one login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required \
        username="admin" password="secret" user_admin="secret" user_alice="other";
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from odradek_protocol.security.errors import SecurityError

FLAGS = frozenset(("required", "requisite", "sufficient", "optional"))
_TOKEN = re.compile(r'\s*(?:"((?:\\.|[^"\\])*)"|([^\s"=;]+)|([=;]))')


@dataclass(frozen=True)
class JaasConfig:
    login_module: str
    options: dict[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The `user_NAME="password"` options of PLAIN on a broker."""
        return {
            name.removeprefix("user_"): value
            for name, value in self.options.items()
            if name.startswith("user_")
        }


def parse_jaas(text: str, setting: str = "sasl.jaas.config") -> JaasConfig:
    """Raises SecurityError, which does not repeat the text: it has passwords."""
    tokens = _tokens(text, setting)
    words = [value for kind, value in tokens[:2] if kind == "word"]
    if len(words) < 2 or words[1].lower() not in FLAGS:
        raise SecurityError(
            f'{setting}: must be `<login module> required name="value" …;`, for example '
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="…";'
        )
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        if at + 2 >= len(tokens) or tokens[at + 1] != ("sign", "="):
            raise SecurityError(f'{setting}: option {len(options) + 1} must be name="value"')
        options[tokens[at][1]] = tokens[at + 2][1]
        at += 3
    if at >= len(tokens):
        raise SecurityError(f"{setting}: must end with a semicolon")
    if at != len(tokens) - 1:
        raise SecurityError(f"{setting}: has more than one login module")
    return JaasConfig(words[0], options)


def _tokens(text: str, setting: str) -> list[tuple[str, str]]:
    found, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SecurityError(f"{setting}: cannot be read at character {at + 1}")
        if match[1] is not None:
            found.append(("word", re.sub(r"\\(.)", r"\1", match[1])))
        else:
            found.append(("word", match[2]) if match[2] is not None else ("sign", match[3]))
        at = match.end()
    return found
