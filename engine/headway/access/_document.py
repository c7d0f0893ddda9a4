"""The format of an access file: policies with rules, and tokens bound to policies; and a token as an entry of it."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from headway.access._authorizer import Access, policy_problem
from headway.access._nodes import Nodes, below, shape
from headway.access._policy import POLICY_CHECKS, RULE_CHECKS, Check, Policy, Rule
from headway.access._tokens import TOKEN_CHECKS, Token

if TYPE_CHECKING:
    import yaml

# Limited to the digits that a time can need.
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")
_BOOLEANS = {"true": True, "false": False}
_TIME = "2026-01-01T00:00:00Z"
_RULE_NEEDS = ("verbs", "type", "partition", "namespace")
_TOKEN_NEEDS = ("accessor", "hash", "policies")

_Read = Callable[["yaml.Node", str, Check], object]


def read_access(text: str, *, source: str = "<text>") -> Access:
    """Return the policies and tokens of a YAML text. Raises ManifestError with all problems, in order."""
    nodes = Nodes(source)
    reader = _Reader(nodes)
    root = nodes.compose(text)
    if root is not None:
        reader.read(root)
    nodes.raise_if_any()
    return Access(reader.policies.values(), reader.tokens.values())


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

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.policies: dict[str, Policy] = {}
        self.tokens: dict[str, Token] = {}

    def read(self, root: yaml.Node) -> None:
        """Read the policies first, wherever they are in the file, because tokens refer to them."""
        fields = self._nodes.mapping(root, "", ("policies", "tokens"))
        for name, read in (("policies", self._policy), ("tokens", self._token)):
            if name in fields:
                for item, where in self._nodes.items(fields[name], name):
                    read(item, where)

    def _policy(self, node: yaml.Node, path: str) -> None:
        fields = self._nodes.mapping(node, path, ("name", "rules"), required=("name", "rules"))
        rules: list[Rule] = []
        if "rules" in fields:
            for item, where in self._nodes.items(fields["rules"], below(path, "rules")):
                values = self._values(item, where, RULE_CHECKS, _RULE_NEEDS)
                if values is not None:
                    rules.append(Rule(**values))
        if "name" not in fields:
            return
        where = below(path, "name")
        name = self._text(fields["name"], where, POLICY_CHECKS["name"])
        if name in self.policies:
            self._nodes.add(fields["name"], where, f"duplicate policy {name!r}: merge the two, or rename one")
        elif name is not None:
            self.policies[name] = Policy(name, rules)

    def _token(self, node: yaml.Node, path: str) -> None:
        values = self._values(node, path, TOKEN_CHECKS, _TOKEN_NEEDS)
        if values is None:
            return
        token = Token(**values)
        if self.tokens.setdefault(token.accessor, token) is not token:
            self._nodes.add(node, path, f"duplicate token {token.accessor!r}: make a new one, or keep one")

    def _values(
        self, node: yaml.Node, path: str, checks: Mapping[str, Check], required: Collection[str]
    ) -> dict[str, Any] | None:
        """Return the values of a mapping's fields, or None after noting a problem with any of them."""
        before = len(self._nodes)
        fields = self._nodes.mapping(node, path, checks, required=required)
        values = {}
        for name, held in fields.items():
            read: _Read = getattr(self, _READERS.get(name, "_text"))
            values[name] = read(held, below(path, name), checks[name])
        return values if len(self._nodes) == before else None

    def _text(self, node: yaml.Node, path: str, check: Check) -> str | None:
        text = self._nodes.text(node, path)
        if text is None:
            return None
        problems = list(check(text))
        for problem in problems:
            self._nodes.add(node, path, problem)
        return None if problems else text

    def _words(self, node: yaml.Node, path: str, check: Check) -> list[str]:
        """Return the strings of a list. A problem with one of them is noted at its own position."""
        items = self._nodes.items(node, path)
        words = [self._text(item, where, lambda word: check([word])) for item, where in items]
        if shape(node) == "sequence" and not words:
            for problem in check([]):
                self._nodes.add(node, path, problem)
        return [word for word in words if word is not None]

    def _names(self, node: yaml.Node, path: str, check: Check) -> list[str]:
        def known_too(value: object) -> Iterator[str]:
            problems = list(check(value))
            yield from problems
            for name in () if problems else cast("list[str]", value):
                if problem := policy_problem(name, self.policies):
                    yield problem

        return self._words(node, path, known_too)

    def _time(self, node: yaml.Node, path: str, _: Check) -> float | None:
        text = self._nodes.text(node, path)
        if text is None:
            return None
        seconds = _seconds(text)
        if seconds is None:
            self._nodes.add(
                node, path, f"expires_at {text!r} must be a time with its zone, such as {_TIME}, or seconds since 1970"
            )
        return seconds

    def _boolean(self, node: yaml.Node, path: str, check: Check) -> bool | None:
        text = self._nodes.text(node, path)
        if text is not None and text not in _BOOLEANS:
            self._nodes.add(node, path, next(check(text)))
        return _BOOLEANS.get(text or "")


_READERS = {"verbs": "_words", "policies": "_names", "expires_at": "_time", "revoked": "_boolean"}


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
