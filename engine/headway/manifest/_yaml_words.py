"""Translate syntax errors of PyYAML and libyaml into messages with advice."""

from __future__ import annotations

import yaml

from headway.manifest._nodes import Place

# The first phrase found in the original message decides. PyYAML's two scanners word some errors differently.
_WORDS = (
    (
        "mapping values are not allowed",
        "unexpected ': ': quote the text that contains it, or fix the indentation",
    ),
    ("block sequence entries are not allowed", "unexpected '- ': start the list on its own line"),
    ("unexpected ':'", "unexpected ':': quote the text that contains it, or write a space after it"),
    ("cannot start any token", "a value can't begin with this character: quote the value (tabs can't indent)"),
    ("expected ',' or ']'", "expected ',' or ']' in a list in brackets"),
    ("expected ',' or '}'", "expected ',' or '}' in a map in braces"),
    ("unexpected end of stream", "the text ends inside quotes"),
    ("could not find expected ':'", "expected ':' after a key"),
    (
        "expected '-' indicator",
        "expected '- ' for the next item of a list, or the indentation differs from the lines above",
    ),
    ("expected key", "unexpected key: the indentation differs from the lines above, or a quote is missing"),
    ("expected <block end>", "the indentation differs from the lines above, or a quote is missing"),
    ("expected node content", "expected a value"),
    ("expected the node content", "expected a value"),
    ("unknown escape character", 'unknown escape in "double quotes": write \\\\ for a backslash, or use single quotes'),
    ("invalid Unicode character", "this escape is not a valid character"),
    ("expected hexdecimal number", "expected hexadecimal digits in this escape"),
    ("undefined tag handle", "a manifest holds plain values only: remove the tag, or quote the text"),
    ("expected <document start>", "expected '---' on its own line before a new document"),
    ("expected alphabetic or numeric character", "expected a name after '&' or '*': quote the text"),
    ("tab character", "tabs can't indent: use spaces"),
)


def syntax_message(error: yaml.MarkedYAMLError) -> str:
    """Return the message for a syntax error, with the place where the invalid value began, if it is another."""
    problem = error.problem or error.context or "it cannot be parsed"
    words = next((words for part, words in _WORDS if part in problem), f"this is not YAML: {problem}")
    begun, found = error.context_mark, error.problem_mark
    if begun is None or found is None or (begun.line, begun.column) == (found.line, found.column):
        return words
    return f"{words} (it began at {Place(begun.line + 1, begun.column + 1)})"
