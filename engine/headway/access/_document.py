"""The format of an access file: policies with rules, tokens bound to policies, and limits on calls; and a token as an
entry of it.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection, Iterator
from collections.abc import Mapping as Known
from typing import Any, cast

from headway.access._authorizer import Access, policy_problem
from headway.access._limits import LIMIT_CHECKS, Limit
from headway.access._policy import POLICY_CHECKS, RULE_CHECKS, Check, Policy, Rule
from headway.access._tokens import TOKEN_CHECKS, Token, redacted
from headway.documents import Mapping, Node, Place, Problems, Scalar, Sequence, below, parse
from headway.resource import did_you_mean

# Limited to the digits that a time can need.
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")
_BOOLEANS = {"true": True, "false": False}
_TIME = "2026-01-01T00:00:00Z"
_RULE_NEEDS = ("verbs", "type", "partition", "namespace")
_TOKEN_NEEDS = ("accessor", "hash", "policies")
_LIMIT_NEEDS = ("name", "categories", "per", "per_second", "burst")
_WHOLE = re.compile(r"-?[0-9]{1,12}\Z")
_NUMBER = re.compile(r"-?[0-9]{1,12}\.[0-9]{1,12}\Z")

_SHAPES = {Scalar: "scalar", Sequence: "sequence", Mapping: "mapping"}

_Read = Callable[[Node, str, Check], object]


def read_access(text: str, *, source: str = "<text>") -> Access:
    """Return the policies, tokens and limits of a YAML text. Raises ManifestError with all problems, in order."""
    problems = Problems(source, redacted)
    reader = _Reader(problems)
    # Without aliases, because a `*` that means any is easily left without its quotes.
    documents = parse(text, "YAML", problems, aliases=False)
    if documents:
        reader.read(documents[0])
    elif not problems:
        # An empty file is more likely truncated than intended, and it would lock out everyone.
        problems.add(Place(1, 1), "", "the file is empty: to deny everything, write {}")
    for other in documents[1:]:
        problems.add(other.place, "", f"a document was already given at {documents[0].place}: keep one of them")
    problems.raise_if_any()
    return Access(reader.policies.values(), reader.tokens.values(), reader.limits.values())


def entry(token: Token) -> str:
    """Return a token as an entry under ``tokens:`` of an access file."""
    fields: dict[str, object] = {"accessor": token.accessor, "hash": token.hash, "policies": list(token.policies)}
    if token.expires_at is not None:
        fields["expires_at"] = _readable(token.expires_at)
    if token.revoked:
        fields["revoked"] = True
    if token.description:
        fields["description"] = token.description
    # JSON is valid YAML, and quotes strings that YAML would read as another type.
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "  - " + "\n    ".join(lines) + "\n"


class _Reader:
    """A reader that continues after a problem. Its result is valid only if no problem was noted."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self.policies: dict[str, Policy] = {}
        self.tokens: dict[str, Token] = {}
        self.limits: dict[str, Limit] = {}

    def read(self, root: Node) -> None:
        """Read the policies first, wherever they are in the file, because tokens and limits refer to them."""
        fields = self._mapping(root, "", ("policies", "tokens", "limits"))
        for name, read in (("policies", self._policy), ("tokens", self._token), ("limits", self._limit)):
            if name in fields:
                for item, where in self._items(fields[name], name):
                    read(item, where)

    def _policy(self, node: Node, path: str) -> None:
        fields = self._mapping(node, path, ("name", "rules"), required=("name", "rules"))
        rules: list[Rule] = []
        if "rules" in fields:
            for item, where in self._items(fields["rules"], below(path, "rules")):
                values = self._values(item, where, RULE_CHECKS, _RULE_NEEDS)
                if values is not None:
                    rules.append(Rule(**values))
        if "name" not in fields:
            return
        where = below(path, "name")
        name = self._text(fields["name"], where, POLICY_CHECKS["name"])
        if name in self.policies:
            self._problems.add(fields["name"].place, where, f"duplicate policy {name!r}: merge the two, or rename one")
        elif name is not None:
            self.policies[name] = Policy(name, rules)

    def _token(self, node: Node, path: str) -> None:
        values = self._values(node, path, TOKEN_CHECKS, _TOKEN_NEEDS)
        if values is None:
            return
        token = Token(**values)
        if self.tokens.setdefault(token.accessor, token) is not token:
            self._problems.add(node.place, path, f"duplicate token {token.accessor!r}: make a new one, or keep one")

    def _limit(self, node: Node, path: str) -> None:
        values = self._values(node, path, LIMIT_CHECKS, _LIMIT_NEEDS)
        if values is None:
            return
        limit = Limit(**values)
        if self.limits.setdefault(limit.name, limit) is not limit:
            self._problems.add(node.place, path, f"duplicate limit {limit.name!r}: keep one of the two, or rename one")

    def _values(
        self, node: Node, path: str, checks: Known[str, Check], required: Collection[str]
    ) -> dict[str, Any] | None:
        """Return the values of a mapping's fields, or None after noting a problem with any of them."""
        before = len(self._problems)
        fields = self._mapping(node, path, checks, required=required)
        values = {}
        for name, held in fields.items():
            read: _Read = getattr(self, _READERS.get(name, "_text"))
            values[name] = read(held, below(path, name), checks[name])
        return values if len(self._problems) == before else None

    def _text(self, node: Node, path: str, check: Check) -> str | None:
        text = self._scalar(node, path)
        if text is None:
            return None
        problems = list(check(text))
        for problem in problems:
            self._problems.add(node.place, path, problem)
        return None if problems else text

    def _words(self, node: Node, path: str, check: Check) -> list[str]:
        """Return the strings of a list. A problem with one of them is noted at its own position."""
        items = self._items(node, path)
        words = [self._text(item, where, lambda word: check([word])) for item, where in items]
        if isinstance(node, Sequence) and not words:
            for problem in check([]):
                self._problems.add(node.place, path, problem)
        return [word for word in words if word is not None]

    def _names(self, node: Node, path: str, check: Check) -> list[str]:
        def known_too(value: object) -> Iterator[str]:
            problems = list(check(value))
            yield from problems
            for name in () if problems else cast("list[str]", value):
                if problem := policy_problem(name, self.policies):
                    yield problem

        return self._words(node, path, known_too)

    def _time(self, node: Node, path: str, _: Check) -> float | None:
        text = self._scalar(node, path)
        if text is None:
            return None
        seconds = _seconds(text)
        if seconds is None:
            self._problems.add(
                node.place,
                path,
                f"expires_at {text!r} must be a time with its zone, such as {_TIME}, or seconds since 1970",
            )
        return seconds

    def _number(self, node: Node, path: str, check: Check) -> float | None:
        text = self._scalar(node, path)
        if text is None:
            return None
        # What is not a number stays a text, and the check refuses that.
        value: Any = int(text) if _WHOLE.match(text) else float(text) if _NUMBER.match(text) else text
        problems = list(check(value))
        for problem in problems:
            self._problems.add(node.place, path, problem)
        return None if problems else value

    def _boolean(self, node: Node, path: str, check: Check) -> bool | None:
        text = self._scalar(node, path)
        if text is not None and text not in _BOOLEANS:
            self._problems.add(node.place, path, next(check(text)))
        return _BOOLEANS.get(text or "")

    def _mapping(
        self, node: Node, path: str, known: Collection[str], *, required: Collection[str] = ()
    ) -> dict[str, Node]:
        """Return the values of a mapping by key. Unknown keys are noted and left out; missing ones are noted."""
        if not isinstance(node, Mapping):
            right = f"expected a mapping with any of {', '.join(known)}; got a {_SHAPES[type(node)]}"
            self._problems.add(node.place, path, right)
            return {}
        found = {key.text: value for key, value in node.entries}
        for key, _ in node.entries:
            if key.text not in known:
                self._problems.add(key.place, path, f"unknown field {key.text!r}{did_you_mean(key.text, known)}")
                # Keys of different kinds may have the same text, such as `on` and `"on"`.
                found.pop(key.text, None)
        for name in required:
            if name not in found:
                self._problems.add(node.place, path, f"{name} is required here")
        return found

    def _items(self, node: Node, path: str) -> list[tuple[Node, str]]:
        """Return the items of a list, each with its path."""
        if not isinstance(node, Sequence):
            message = f"expected a list, got a {_SHAPES[type(node)]}; write [] for an empty one"
            self._problems.add(node.place, path, message)
            return []
        return [(item, below(path, number)) for number, item in enumerate(node.items)]

    def _scalar(self, node: Node, path: str) -> str | None:
        """Return a scalar as it is written, whatever type YAML gives it: an accessor may look like a number."""
        if not isinstance(node, Scalar):
            self._problems.add(node.place, path, f"expected a string, got a {_SHAPES[type(node)]}")
        elif node.kind == "nothing":
            self._problems.add(node.place, path, "expected a string, got nothing; write '' for an empty one")
        else:
            return node.text
        return None


_READERS = {
    "verbs": "_words",
    "policies": "_names",
    "expires_at": "_time",
    "revoked": "_boolean",
    "categories": "_words",
    "per": "_words",
    "per_second": "_number",
    "burst": "_number",
}


def _readable(seconds: float) -> str | float:
    """Return a time as text, or the seconds if the text would be less precise."""
    try:
        text = datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return seconds
    return text if _seconds(text) == seconds else seconds


def _seconds(text: str) -> float | None:
    """Return the seconds since the epoch that a text represents, or None."""
    if _SECONDS.match(text):
        return float(text)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()
