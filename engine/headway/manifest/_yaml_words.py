"""Say in our words what libyaml finds wrong with a text."""

from __future__ import annotations

import yaml

from headway.manifest._nodes import Place

# The first that is found in PyYAML's own sentence stands for it; both of its scanners are meant.
_WORDS = (
    (
        "mapping values are not allowed",
        "a ': ' can't stand here: quote the text that it is in, or mend the indentation",
    ),
    ("block sequence entries are not allowed", "a '- ' can't stand here: begin the list on a line of its own"),
    ("unexpected ':'", "a ':' can't stand here: quote the text that it is in, or write a space after it"),
    ("cannot start any token", "no value can begin with this character: quote the value (a tab can't indent)"),
    ("expected ',' or ']'", "a list in brackets goes on here without ',' or ']'"),
    ("expected ',' or '}'", "a map in braces goes on here without ',' or '}'"),
    ("unexpected end of stream", "the text ends inside quotes"),
    ("could not find expected ':'", "a key stands here without ':'"),
    ("expected '-' indicator", "a list goes on here without '- ', or the indentation is not that of the lines above"),
    ("expected key", "a key can't begin here: the indentation is not that of the lines above, or a quote is missing"),
    ("expected <block end>", "the indentation is not that of the lines above, or a quote is missing"),
    ("expected node content", "a value should stand here"),
    ("expected the node content", "a value should stand here"),
    ("unknown escape character", 'no such escape in "double quotes": write \\\\ for a backslash, or use single quotes'),
    ("invalid Unicode character", "this escape is no character"),
    ("expected hexdecimal number", "this escape needs hexadecimal digits"),
    ("undefined tag handle", "a manifest holds plain values only: take the tag away, or quote the text"),
    ("expected <document start>", "a new document begins with '---' on a line of its own"),
    ("expected alphabetic or numeric character", "'&' and '*' are followed by a name here: quote the text"),
    ("tab character", "a tab can't indent: use spaces"),
)


def syntax_message(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, and where that began which is wrong, if that is elsewhere."""
    problem = error.problem or error.context or "it can't be read"
    words = next((words for part, words in _WORDS if part in problem), f"this is not YAML: {problem}")
    begun, found = error.context_mark, error.problem_mark
    if begun is None or found is None or (begun.line, begun.column) == (found.line, found.column):
        return words
    return f"{words} (it began at {Place(begun.line + 1, begun.column + 1)})"
