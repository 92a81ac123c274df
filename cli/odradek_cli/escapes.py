r"""Escapes in arguments and files: `-K '\t'` is a tab in every shell.

\n \t \r \f \0 \\ \xHH \uHHHH; any other character after a backslash stands for itself.
"""

from __future__ import annotations

import re

_SINGLE = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "0": "\0", "\\": "\\"}
_PATTERN = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.?))", re.DOTALL)


def unescape(text: str) -> str:
    """The text with its escapes replaced; an unknown one stands for the character after it."""

    def replaced(match: re.Match[str]) -> str:
        if code := match[1] or match[2]:
            return chr(int(code, 16))
        return _SINGLE.get(match[3], match[3])

    return _PATTERN.sub(replaced, text)
