"""Parse HCL into nodes, with the place of every value: attributes, blocks and constants, but no expressions.

tree-sitter's HCL grammar finds the structure, and this module interprets the leaves as HashiCorp's specification says.
A body is a map. Blocks with the same name are a list, or a map by their labels; the message class decides which one is
valid.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import count

import tree_sitter_hcl
from tree_sitter import Language, Parser
from tree_sitter import Node as Parsed

from headway.documents._nodes import (
    DEPTH_LIMIT,
    Mapping,
    Node,
    Place,
    Problems,
    Scalar,
    Sequence,
    alone,
    below,
    check_characters,
    literal_scalar,
    number_scalar,
    text_scalar,
)

# The grammar also accepts hexadecimal numbers, which HCL itself doesn't have.
_NUMBER = re.compile(r"(-?)\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\Z", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_DOUBLED = re.compile(r"([$%])\1\{")
_HEREDOC_BEGIN = re.compile(r"<<-?[^\W\d][\w-]*\r?\Z")
_HEREDOC_END = re.compile(r"[ \t]*\w[\w.-]*\Z")
# What the grammar does not know: `1e3`, and `$$${`, a dollar sign before an escaped `${`. Each alternative that begins
# also ends, at the end of the text at the latest, so that a text is scanned once.
_UNKNOWN = re.compile(
    rb"""(?P<text>"(?:[^"\\\n]|\\.)*+"?|<<-?(?P<name>\w[\w-]*)\r?\n.*?(?:\n[ \t]*(?P=name)(?![\w-])|\Z))"""
    rb"""|\#[^\n]*|//[^\n]*|/\*.*?(?:\*/|\Z)|(?P<number>(?<![\w.])[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]+(?!\w))""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED_TEMPLATE = re.compile(rb"\$\$\{|%%\{")
_PUNCTUATION = "{}[](),:=?*"
_TEMPLATE = re.compile(r"[$%]\{")
_INTERPOLATION = "interpolation is not allowed: write the value, or $${ for ${ and %%{ for %{"
_INTERPOLATED = ("template_interpolation", "template_directive")


class _Invalid(Exception):
    """A value that a manifest cannot contain, with its position."""

    def __init__(self, message: str, node: Parsed) -> None:
        super().__init__(message)
        self.at = _beginning(node)


def read_hcl(text: str, problems: Problems) -> Iterator[Node]:
    """Yield the documents of a text: the whole text, or each ``resource`` block.

    Malformed text has no documents. Raises Unreadable then.
    """
    check_characters(text, problems)
    source = text.removeprefix("\ufeff").encode()
    root = Parser(Language(tree_sitter_hcl.language())).parse(_UNKNOWN.sub(_known, source)).root_node
    reader = _Reader(source, problems)
    if root.has_error:
        at, message = _syntax_error(root, source)
        raise problems.unreadable(reader.place(at), "", message)
    body = next((child for child in root.named_children if child.type == "body"), None)
    if body is None:
        for other in root.named_children:
            if other.type != "comment":
                problems.add(reader.place(_beginning(other)), "", "expected NAME = VALUE or NAME { … }, got an object")
        return
    try:
        yield from reader.documents(body)
    except _Invalid as invalid:
        raise problems.unreadable(reader.place(invalid.at), "", str(invalid)) from invalid


def _known(found: re.Match[bytes]) -> bytes:
    """Return something of the same length that the grammar knows. The values are read from the source itself."""
    if found["number"] is not None:
        return b"0" * len(found[0])
    return _ESCAPED_TEMPLATE.sub(b"__{", found[0]) if found["text"] is not None else found[0]


class _Reader:
    def __init__(self, source: bytes, problems: Problems) -> None:
        self._source = source
        self._lines = source.split(b"\n")
        self._problems = problems
        # The last place in a line with other letters: its row, and its column in bytes and in characters.
        self._last = (0, 0, 0)

    def place(self, at: tuple[int, int]) -> Place:
        """Return a place. The parser counts columns in bytes, but places count characters."""
        row, column = at
        # Most places are asked for in ascending order, so a long line is decoded once and not for each of them.
        last_row, before, characters = self._last
        if last_row != row or before > column:
            before = characters = 0
        characters += len(self._lines[row][before:column].decode(errors="replace"))
        self._last = (row, column, characters)
        return Place(row + 1, characters + 1)

    def _text(self, node: Parsed) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def documents(self, body: Parsed) -> Iterator[Node]:
        whole = self._body(body, self._begin(body), 1, "")
        resources = next((node for key, node in whole.entries if key.text == "resource"), None)
        if not isinstance(resources, Mapping) or not resources.block:
            yield whole
            return
        for key, _ in whole.entries:
            if key.text != "resource":
                self._problems.add(key.place, key.text, "only 'resource' blocks are allowed here: move it into one")
        yield alone(resources)
        yield from resources.again

    def _begin(self, node: Parsed) -> Place:
        return self.place(_beginning(node))

    def _body(self, body: Parsed | None, place: Place, depth: int, path: str) -> Mapping:
        if depth > DEPTH_LIMIT and body is not None:
            raise _Invalid(f"this is nested deeper than {DEPTH_LIMIT} levels", body)
        found = _Body(self._problems, path)
        for child in body.named_children if body is not None else ():
            if child.type == "attribute":
                name, value = (each for each in child.named_children if each.type != "comment")
                key = self._key(name, self._text(name))
                where = below(path, key.text)
                found.attribute(key, self._value(value, depth + 1, where, named=key.text))
            elif child.type == "block":
                self._block(child, depth, found)
        return Mapping(place, found.entries(), block=depth > 1)

    def _block(self, block: Parsed, depth: int, found: _Body) -> None:
        parts = [each for each in block.named_children if each.type not in ("comment", "block_start", "block_end")]
        body = parts.pop() if parts[-1].type == "body" else None
        name, *labels = parts
        key = self._key(name, self._text(name))
        if len(labels) > 1:
            raise _Invalid("a block can have only one label, the key of its map", labels[1])
        where = below(found.path, key.text)
        if not labels:
            found.block(key, self._body(body, key.place, depth + 1, where))
            return
        [label] = labels
        text = _quoted_text(label, self._text(label)) if label.type == "string_lit" else self._text(label)
        inner = self._key(label, text)
        found.labelled(key, inner, self._body(body, key.place, depth + 2, below(where, text)))

    def _key(self, node: Parsed, text: str) -> Scalar:
        return text_scalar(self._begin(node), text, "HCL")

    def _value(self, node: Parsed, depth: int, path: str, *, named: str = "") -> Node:
        if depth > DEPTH_LIMIT:
            raise _Invalid(f"this is nested deeper than {DEPTH_LIMIT} levels", node)
        place = self._begin(node)
        held = [child for child in node.named_children if child.type != "comment"]
        kind = node.type
        if kind in ("expression", "literal_value", "collection_value", "template_expr") and len(held) == 1:
            # A level of the grammar, or parentheses, but not a level of the value.
            return self._value(held[0], depth + (kind == "expression"), path, named=named)
        if kind == "tuple":
            items = [child for child in held if child.type == "expression"]
            values = (self._value(item, depth, below(path, n)) for n, item in zip(count(), items))
            return Sequence(place, tuple(values))
        if kind == "object":
            return self._object(held, place, depth, path)
        if kind == "function_call" and named.lower() == "type":
            return self._type_name(held, place)
        return self._scalar(node, place)

    def _object(self, held: list[Parsed], place: Place, depth: int, path: str) -> Mapping:
        found = _Body(self._problems, path)
        for element in held:
            if element.type != "object_elem":
                continue
            name, value = element.child_by_field_name("key"), element.child_by_field_name("val")
            assert name is not None
            assert value is not None
            key = self._key(name, _key_text(name, self._text(name)))
            found.attribute(key, self._value(value, depth, below(path, key.text), named=key.text))
        return Mapping(place, found.entries())

    def _type_name(self, held: list[Parsed], place: Place) -> Scalar:
        """Return the type name in a call of ``gvk`` with one or three arguments, such as ``gvk("demo.v2.Artist")``."""
        name, *arguments = held
        given = [each for each in (arguments[0].named_children if arguments else ()) if each.type == "expression"]
        parts = [self._value(each, 1, "") for each in given]
        texts = [part.text for part in parts if isinstance(part, Scalar) and part.kind == "text"]
        if self._text(name) != "gvk" or len(texts) != len(parts) or len(texts) not in (1, 3):
            right = 'write gvk("group.version.Kind"), or gvk with the three parts, or only the name in quotes'
            raise _Invalid(f"invalid type name: {right}", name)
        return text_scalar(place, ".".join(texts), "HCL")

    def _scalar(self, node: Parsed, place: Place) -> Scalar:
        written = self._text(node)
        if node.type in ("string_lit", "quoted_template", "heredoc_template"):
            read = _heredoc_text if node.type == "heredoc_template" else _quoted_text
            return text_scalar(place, read(node, written), "HCL")
        if node.type in ("bool_lit", "null_lit") and (literal := literal_scalar(place, written, "HCL")) is not None:
            return literal
        if node.type in ("numeric_lit", "operation") and (found := _NUMBER.match(written)):
            return number_scalar(place, "".join(found.groups()), "HCL")
        if node.type == "variable_expr":
            raise _Invalid("a variable is not allowed in a manifest: write text in quotes", node)
        raise _Invalid("expressions are not allowed: a manifest holds plain values only", node)


class _Body:
    """Collects the entries of a body or an object. Duplicate keys are problems."""

    def __init__(self, problems: Problems, path: str) -> None:
        self.path = path
        self._problems = problems
        self._values: dict[str, tuple[Scalar, Node]] = {}
        self._blocks: dict[str, tuple[Scalar, list[Mapping]]] = {}
        self._labelled: dict[str, tuple[Scalar, _Body]] = {}

    def attribute(self, key: Scalar, value: Node) -> None:
        if self._is_new(key, self._values):
            self._values[key.text] = key, value

    def block(self, key: Scalar, body: Mapping) -> None:
        if self._is_new(key, self._blocks, more=True):
            self._blocks.setdefault(key.text, (key, []))[1].append(body)

    def labelled(self, key: Scalar, label: Scalar, body: Mapping) -> None:
        if self._is_new(key, self._labelled, more=True):
            inner = _Body(self._problems, below(self.path, key.text))
            self._labelled.setdefault(key.text, (key, inner))[1].attribute(label, body)

    def entries(self) -> tuple[tuple[Scalar, Node], ...]:
        found: list[tuple[Scalar, Node]] = list(self._values.values())
        for key, bodies in self._blocks.values():
            first, *again = bodies
            found.append((key, Mapping(first.place, first.entries, block=True, again=tuple(again))))
        found += [(key, Mapping(key.place, inner.entries())) for key, inner in self._labelled.values()]
        return tuple(sorted(found, key=lambda entry: entry[0].place))

    def _is_new(self, key: Scalar, kind: object, *, more: bool = False) -> bool:
        for held in (self._values, self._blocks, self._labelled):
            known = held.get(key.text)
            if known is None or (more and held is kind):
                continue
            where = below(self.path, key.text)
            self._problems.add(
                key.place, where, f"the key {key} was already given at {known[0].place}: keep one of them"
            )
            return False
        return True


def _key_text(node: Parsed, text: str) -> str:
    while node.type != "string_lit" and len(node.named_children) == 1 and node.child_count == 1:
        node = node.named_children[0]
    if node.type == "string_lit":
        return _quoted_text(node, text)
    if node.type in ("identifier", "numeric_lit", "bool_lit", "null_lit"):
        return text
    raise _Invalid("a key must be a name or text in quotes", node)


def _quoted_text(node: Parsed, text: str) -> str:
    """Return the text in quotes."""
    _check_constant(node)
    raw = text[1:-1]
    if "\n" in raw:
        raise _Invalid(r"a line break is not allowed in quotes: write it as \n, or use <<EOT", node)

    def escaped(found: re.Match[str]) -> str:
        four, eight, one = found.groups()
        if one is not None:
            if one not in _ESCAPED:
                raise _Invalid("unknown escape: write \\\\ for a backslash", node)
            return _ESCAPED[one]
        code = int(four or eight, 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise _Invalid("this escape is not a valid character", node)
        return chr(code)

    # Split at `$${` and `%%{` first: backslash escapes can neither contain nor produce them.
    pieces = _DOUBLED.split(raw)
    if any(_TEMPLATE.search(piece) for piece in pieces[::2]):
        # A label, in which the grammar knows no templates.
        raise _Invalid(_INTERPOLATION, node)
    texts = [_ESCAPE.sub(escaped, piece) if n % 2 == 0 else f"{piece}{{" for n, piece in enumerate(pieces)]
    return _normal("".join(texts))


def _heredoc_text(node: Parsed, text: str) -> str:
    """Return the lines of a heredoc, with their line breaks. ``<<-`` removes their common indentation."""
    _check_constant(node)
    opening, _, rest = text.partition("\n")
    lines, line_break, end = rest.rpartition("\n")
    if not _HEREDOC_BEGIN.match(opening) or not _HEREDOC_END.match(end):
        raise _Invalid("a heredoc must be <<NAME, its lines, and NAME on its own line", node)
    lines += line_break
    text = _dedented(lines) if opening.startswith("<<-") else lines
    return _normal(_DOUBLED.sub(r"\1{", text))


def _dedented(lines: str) -> str:
    """Return lines without their common number of blanks. A tab is one, and a line of blanks stays as it is."""
    split = lines.split("\n")
    common = min((len(line) - len(line.lstrip()) for line in split if line.strip()), default=0)
    return "\n".join(line[common:] if line.strip() else line for line in split)


def _normal(text: str) -> str:
    # All texts of HCL are normalized, so that two spellings of a character are equal.
    return unicodedata.normalize("NFC", text)


def _check_constant(node: Parsed) -> None:
    pending = [node]
    while pending:
        held = pending.pop()
        if held.type in _INTERPOLATED:
            raise _Invalid(_INTERPOLATION, held)
        pending += held.named_children


def _beginning(node: Parsed) -> tuple[int, int]:
    """Return the row of a node and its column in bytes. Both count from 0."""
    return node.start_point.row, node.start_point.column


def _syntax_error(root: Parsed, source: bytes) -> tuple[tuple[int, int], str]:
    """Return the position of a syntax error, with a message that says what was expected, if known."""
    node = root
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    if node.is_missing:
        return _beginning(node), _MISSING.get(node.type, f"expected {node.type!r}")
    # The last leaf of an error node is the token that the parser could not place.
    last = node.children[-1] if node.children else node
    while last.children:
        last = last.children[-1]
    line = source[last.start_byte :].split(b"\n")[0].decode(errors="replace").strip()
    if line.startswith("\\"):
        return _beginning(last), "unknown escape: write \\\\ for a backslash"
    # Other text may be a secret without its quotes.
    shown = "end of line" if not line else repr(line[0]) if line[0] in _PUNCTUATION else "text"
    return _beginning(last), (
        f'unexpected {shown}: write NAME = VALUE or NAME {{ … }}, text in "double quotes", '
        "and commas only in [ ] and = { }"
    )


_MISSING = {
    "identifier": "expected a value",
    "quoted_template_end": "the text in quotes doesn't end",
    "heredoc_identifier": "the heredoc doesn't end: write its name on its own line",
    "}": "a block or object doesn't end: expected '}'",
    "]": "a list doesn't end: expected ']'",
    ")": "expected ')'",
}
