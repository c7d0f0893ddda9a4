"""Read HCL's quoted text and heredocs, and locate syntax errors."""

from __future__ import annotations

import re
import textwrap

from tree_sitter import Node as Parsed

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_DOUBLED = re.compile(r"([$%])\1\{")
_HEREDOC_END = re.compile(r"[ \t]*\w[\w.-]*\Z")
_INTERPOLATED = ("template_interpolation", "template_directive")


class Unreadable(Exception):
    """A value that a manifest cannot contain, with its position."""

    def __init__(self, message: str, node: Parsed) -> None:
        super().__init__(message)
        self.at = beginning(node)


def quoted_text(node: Parsed) -> str:
    """Return the text in quotes."""
    _check_constant(node)
    raw = _text(node)[1:-1]
    if "\n" in raw:
        raise Unreadable(r"a line break is not allowed in quotes: write it as \n, or use <<EOT", node)

    def escaped(found: re.Match[str]) -> str:
        four, eight, one = found.groups()
        if one is not None:
            if one not in _ESCAPED:
                raise Unreadable(f"unknown escape: \\{one}; write \\\\ for a backslash", node)
            return _ESCAPED[one]
        code = int(four or eight, 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise Unreadable(f"this escape is not a valid character: {found.group()}", node)
        return chr(code)

    # Split at `$${` and `%%{` first: backslash escapes can neither contain nor produce them.
    pieces = _DOUBLED.split(raw)
    texts = [_ESCAPE.sub(escaped, piece) if n % 2 == 0 else f"{piece}{{" for n, piece in enumerate(pieces)]
    return "".join(texts)


def heredoc_text(node: Parsed) -> str:
    """Return the lines of a heredoc, with their line breaks. ``<<-`` removes their common indentation."""
    _check_constant(node)
    opening, _, rest = _text(node).replace("\r\n", "\n").partition("\n")
    lines, line_break, end = rest.rpartition("\n")
    if not _HEREDOC_END.match(end):
        raise Unreadable("a heredoc must be <<NAME, its lines, and NAME on its own line", node)
    lines += line_break
    text = textwrap.dedent(lines) if opening.startswith("<<-") else lines
    return _DOUBLED.sub(r"\1{", text)


def _check_constant(node: Parsed) -> None:
    pending = [node]
    while pending:
        held = pending.pop()
        if held.type in _INTERPOLATED:
            raise Unreadable("interpolation is not allowed: write the value, or $${ for ${ and %%{ for %{", held)
        pending += held.named_children


def beginning(node: Parsed) -> tuple[int, int]:
    """Return the row of a node and its column in bytes. Both count from 0."""
    return node.start_point.row, node.start_point.column


def syntax_error(root: Parsed, source: bytes) -> tuple[tuple[int, int], str]:
    """Return the position of a syntax error, with a message that says what was expected, if known."""
    node = root
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    if node.is_missing:
        return beginning(node), _MISSING.get(node.type, f"expected {node.type!r}")
    # The last leaf of an error node is the token that the parser could not place.
    last = node.children[-1] if node.children else node
    while last.children:
        last = last.children[-1]
    line = source[last.start_byte :].split(b"\n")[0].decode(errors="replace").strip()
    if line.startswith("\\"):
        return beginning(last), "unknown escape: write \\\\ for a backslash"
    shown = repr(line[:40]) if line else "end of line"
    return beginning(last), (
        f'unexpected {shown}: write NAME = VALUE or NAME {{ … }}, text in "double quotes", '
        "and commas only in [ ] and = { }"
    )


def _text(node: Parsed) -> str:
    return (node.text or b"").decode()


_MISSING = {
    "identifier": "expected a value",
    "quoted_template_end": "the text in quotes doesn't end",
    "heredoc_identifier": "the heredoc doesn't end: write its name on its own line",
    "}": "a block or object doesn't end: expected '}'",
    "]": "a list doesn't end: expected ']'",
    ")": "expected ')'",
}
