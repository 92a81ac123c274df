"""Java's .properties syntax, with the examples that trip parsers up."""

import pytest

from odradek_broker.runtime.properties import MalformedEscapeError, Property, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("  a  =  1 2 ", [("a", "1 2 ")]),
        ("a:1\nb 2\nc", [("a", "1"), ("b", "2"), ("c", "")]),
        ("# no\n ! no\n\na=1", [("a", "1")]),
        ("a=x,\\\n    y,\\\n  z\nb=1", [("a", "x,y,z"), ("b", "1")]),
        ("a=c:\\\\dir\\\\\nb=1", [("a", "c:\\dir\\"), ("b", "1")]),
        ("a\\ b\\=c=d", [("a b=c", "d")]),
        ("a=\\u00e9\\t!", [("a", "é\t!")]),
        ("a=1\r\nb=2\r", [("a", "1"), ("b", "2")]),
        ("a=b=c", [("a", "b=c")]),
        ("a=1\\", [("a", "1")]),
        ("", []),
    ],
)
def test_syntax(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(p.name, p.value) for p in parse_properties(text)] == expected


def test_line_numbers_are_those_of_the_first_line() -> None:
    text = "# c\na=1,\\\n 2\nb=3"
    assert list(parse_properties(text)) == [Property(2, "a", "1,2"), Property(4, "b", "3")]


@pytest.mark.parametrize(
    "text", ["a=1\nb=\\u12", "a=1\nb=\\u+00D", "a=1\nb=\\u12_3", "a=1\n\\uzzzz=b"]
)
def test_a_malformed_escape_names_its_line(text: str) -> None:
    with pytest.raises(MalformedEscapeError) as refused:
        list(parse_properties(text))
    assert refused.value.line == 2
