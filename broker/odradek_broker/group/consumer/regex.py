"""Subscriptions by regular expression: RE2's syntax and speed, whole topic names, as in Kafka.

RE2 matches in time linear in the name's length for any expression; with Python's `re` one member
could block the broker for hours. Matching against all topics is done in a thread.
"""

from collections.abc import Iterable

import re2

from odradek_protocol.error_codes import ErrorCode, KafkaError

# Memory for a compiled expression; `(((a{99}){99}){99})` would take all memory.
COMPILED_BYTES_MAX = 1 << 20


def _compile(expression: str) -> "re2._Regexp":
    options = re2.Options()
    options.max_mem = COMPILED_BYTES_MAX
    options.log_errors = False
    return re2.compile(expression, options)


def check(expression: str) -> None:
    try:
        _compile(expression)
    except re2.error as error:
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: "
            f"{_text(error)}.",
        ) from None


def resolve(expressions: Iterable[str], topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The topics that each expression matches as a whole; may run in a thread."""
    names = sorted(topics)
    matched: dict[str, tuple[str, ...]] = {}
    for expression in expressions:
        try:
            pattern = _compile(expression)
        except re2.error:  # from a log that another program wrote: it matches nothing
            matched[expression] = ()
            continue
        matched[expression] = tuple(name for name in names if pattern.fullmatch(name))
    return matched


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
