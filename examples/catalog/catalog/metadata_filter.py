"""The filter of a workload selector: its grammar, and what it says of a resource's metadata.

A filter is an expression in the language that Consul's clients know:

    metadata.color == red and not (metadata["env"] matches "^prod" or canary in metadata)

A comparison reads an entry, as `metadata.key` or `metadata["key"]`, or the whole of `metadata`. An entry that is absent
satisfies the negated operators (`!=`, `not in`, `not contains`, `not matches`) and no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import re2

LONGEST: Final = 4096
"""The number of characters that a filter may have. Each workload of a selector is compared with the whole filter."""
DEEPEST: Final = 50
"""The number of parentheses and negations that may enclose a comparison."""

Test = Callable[[Mapping[str, str]], bool]
"""A function of a resource's metadata that returns True if the filter selects the resource."""

_EXAMPLE = 'metadata.color == "red"'
# Consul's clients know these tokens: text in double quotes ends at the next one, also after a backslash.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]*)
        (?: (?P<sign>==|!=|[()\[\].])
          | (?P<text>"[^"\n]*" | `[^`]*`)
          | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?=[ \t\r\n)]|\Z))
          | (?P<word>[A-Za-z][A-Za-z0-9_]*)
          | (?P<end>\Z) )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv\\\"])|x([0-9a-fA-F]{2})|([0-3][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.DOTALL
)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def parse(text: str) -> Test:
    """Return the test that a filter describes.

    Raises:
        ValueError: the text is not a filter, reads anything but `metadata`, or has more than `LONGEST` characters.
    """
    if len(text) > LONGEST:
        raise ValueError(f"the filter has {len(text)} characters: a filter has at most {LONGEST}")
    parser = _Parser(text)
    test = parser.either(0)
    parser.expect_end()
    return test


@dataclass(frozen=True, slots=True)
class _Token:
    """A token: its class, the position where it begins, and True if it follows a blank or is an end of the text."""

    kind: str
    text: str
    at: int
    spaced: bool


class _Parser:
    """A parser by recursive descent, which makes a function of each expression."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0

    def either(self, depth: int) -> Test:
        """Parse `a or b or c`."""
        tests = [self._both(depth)]
        while self._accept_words("or"):
            tests.append(self._both(depth))
        return tests[0] if len(tests) == 1 else lambda metadata: any(test(metadata) for test in tests)

    def expect_end(self) -> None:
        """Refuse anything that follows the expression."""
        if self._peek().kind != "end":
            raise self._unexpected("'and', 'or' or the end of the filter")

    def _both(self, depth: int) -> Test:
        tests = [self._single(depth)]
        while self._accept_words("and"):
            tests.append(self._single(depth))
        return tests[0] if len(tests) == 1 else lambda metadata: all(test(metadata) for test in tests)

    def _single(self, depth: int) -> Test:
        if depth > DEEPEST:
            raise ValueError(f"the filter is nested more than {DEEPEST} deep: use fewer parentheses, as in {_EXAMPLE}")
        begin, token = self._next, self._peek()
        if (token.kind, token.text) == ("word", "not") and self._tokens[begin + 1].spaced:
            self._next += 1
            try:
                test = self._single(depth + 1)
            except ValueError:
                # It may be a value, as in `not in metadata`.
                self._next = begin
                if (found := self._in()) is None:
                    raise
                return found
            return lambda metadata: not test(metadata)
        if self._accept("("):
            test = self.either(depth + 1)
            self._expect(")")
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        if (found := self._in()) is not None:
            return found
        first = self._peek()
        if first.kind != "word" or first.text != "metadata":
            value = self._value()
            if first.kind == "word":
                raise ValueError(f"unknown field {value!r} at character {first.at}: a filter reads only metadata")
            raise self._unexpected("'in'")
        key = self._selector()
        for words, negated in ((("is", "empty"), False), (("is", "not", "empty"), True)):
            if self._accept_words(*words):
                if key is not None:
                    raise ValueError(
                        f"'is empty' reads the whole of metadata, not the entry {key!r}: metadata is empty"
                    )
                return lambda metadata: bool(metadata) is negated
        negated, operator = self._operator()
        if operator == "contains":
            return _contains(key, self._value(), negated=negated)
        if key is None:
            raise ValueError(f"{operator!r} reads one entry, not the whole of metadata: {_EXAMPLE}")
        value = self._value()
        holds = _matching(value) if operator == "matches" else lambda entry: entry == value
        return _of_entry(key, holds, negated=negated)

    def _in(self) -> Test | None:
        """Parse `value in metadata`. Return None without a step if that is not what follows: a key may be a value."""
        begin, value = self._next, self._value()
        for words, negated in ((("in",), False), (("not", "in"), True)):
            if self._accept_words(*words):
                return _contains(self._selector(), value, negated=negated)
        self._next = begin
        return None

    def _operator(self) -> tuple[bool, str]:
        """Parse an operator, and return True if it is negated, and its positive form."""
        for sign, negated in (("==", False), ("!=", True)):
            if self._accept(sign):
                return negated, sign
        for word in ("contains", "matches"):
            if self._accept_words(word):
                return False, word
            if self._accept_words("not", word):
                return True, word
        raise self._unexpected("an operator, such as '==', 'contains' or 'matches'")

    def _selector(self) -> str | None:
        """Parse `metadata.key`, and return the key, or `metadata`, and return None."""
        if self._peek().text != "metadata" or self._peek().kind != "word":
            raise self._unexpected("'metadata', which is all that a filter can read")
        self._next += 1
        parts = self._parts()
        if len(parts) > 1:
            raise ValueError(f"metadata has no entry within the entry {parts[0]!r}: {_EXAMPLE}")
        return parts[0] if parts else None

    def _value(self) -> str:
        token = self._peek()
        if token.kind not in ("text", "number", "word"):
            raise self._unexpected(f"a value, such as the one in {_EXAMPLE}")
        self._next += 1
        if token.kind == "text":
            return _unquoted(token.text)
        return ".".join([token.text, *self._parts()]) if token.kind == "word" else token.text

    def _parts(self) -> list[str]:
        """Parse the rest of a selector: `.key` and `["key"]`, without blanks before them."""
        parts: list[str] = []
        while not self._peek().spaced:
            if self._accept("."):
                if self._peek().spaced:
                    raise self._unexpected("a key directly after the point, such as metadata.color")
                parts.append(self._take("word", "the key of an entry, such as metadata.color"))
            elif self._accept("["):
                parts.append(_unquoted(self._take("text", 'a quoted key, such as metadata["color"]')))
                self._expect("]")
            else:
                break
        return parts

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.kind != "sign" or token.text != text:
            return False
        self._next += 1
        return True

    def _accept_words(self, *words: str) -> bool:
        """Accept an operator of words, with blanks around each."""
        *found, after = self._tokens[self._next :][: len(words) + 1]
        if [each.text for each in found] != [*words] or not all(each.kind == "word" and each.spaced for each in found):
            return False
        if not after.spaced and words[-1] != "empty":
            return False
        self._next += len(words)
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(repr(text))

    def _take(self, kind: str, what: str) -> str:
        token = self._peek()
        if token.kind != kind:
            raise self._unexpected(what)
        self._next += 1
        return token.text

    def _unexpected(self, wanted: str) -> ValueError:
        token = self._peek()
        found = "the end" if token.kind == "end" else repr(token.text)
        return ValueError(f"expected {wanted} at character {token.at}, got {found}")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            wrong = text[at:].lstrip()
            raise ValueError(f"unexpected {wrong[:1]!r} at character {len(text) - len(wrong)}: {_EXAMPLE}")
        spaced = bool(match["space"]) or not found or match.lastgroup == "end"
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup), spaced))
        at = match.end()
    return found


def _unquoted(text: str) -> str:
    """Return the text of a literal of Go. Bytes that are not UTF-8 equal no entry."""
    if text.startswith("`"):
        return text[1:-1].replace("\r", "")

    def character(match: re.Match[bytes]) -> bytes:
        short, byte, octal, four, eight, _ = match.groups()
        if short:
            return _ESCAPED[short.decode()].encode()
        if byte or octal:
            return bytes([int(byte, 16) if byte else int(octal, 8)])
        try:
            return chr(int(four or eight or b"-1", 16)).encode()
        except (ValueError, OverflowError):
            raise ValueError(
                f"unknown escape {match[0].decode(errors='replace')} in {text}: write the text between backquotes"
            ) from None

    return _ESCAPE.sub(character, text[1:-1].encode()).decode(errors="surrogateescape")


def _matching(pattern: str) -> Callable[[str], bool]:
    """Return a search for a pattern in RE2's language, whose time is linear in the text, whoever wrote the pattern."""
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise ValueError(f"{pattern!r} is not a pattern of RE2: {reason}") from None
    return lambda entry: compiled.search(entry) is not None


def _contains(key: str | None, value: str, *, negated: bool) -> Test:
    if key is None:
        return lambda metadata: (value in metadata) is not negated
    return _of_entry(key, lambda entry: value in entry, negated=negated)


def _of_entry(key: str, holds: Callable[[str], bool], *, negated: bool) -> Test:
    def test(metadata: Mapping[str, str]) -> bool:
        entry = metadata.get(key)
        return (entry is not None and holds(entry)) is not negated

    return test
