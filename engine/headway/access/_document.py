"""What an access file may say: policies with rules, and tokens bound to them; and a token as an entry for it."""

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

# No more digits than a time can need.
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")
_BOOLEANS = {"true": True, "false": False}
_TIME = "2026-01-01T00:00:00Z"
_RULE_NEEDS = ("verbs", "type", "partition", "namespace")
_TOKEN_NEEDS = ("accessor", "hash", "policies")

_Read = Callable[["yaml.Node", str, Check], object]


def read_access(text: str, *, source: str = "<text>") -> Access:
    """The policies and tokens of a YAML text. Raises ManifestError with every problem, in the text's order."""
    nodes = Nodes(source)
    reader = _Reader(nodes)
    root = nodes.compose(text)
    if root is not None:
        reader.read(root)
    nodes.raise_if_any()
    return Access(reader.policies.values(), reader.tokens.values())


def entry(token: Token) -> str:
    """A token as it stands under ``tokens:`` of an access file."""
    fields: dict[str, object] = {"accessor": token.accessor, "hash": token.hash, "policies": list(token.policies)}
    if token.expires_at is not None:
        fields["expires_at"] = _readable(token.expires_at)
    if token.revoked:
        fields["revoked"] = True
    if token.description:
        fields["description"] = token.description
    # JSON is YAML, and quotes what YAML would take for something else.
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "  - " + "\n    ".join(lines) + "\n"


class _Reader:
    """Reads as much as it can. What it has read is to be used only when nothing was noted."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.policies: dict[str, Policy] = {}
        self.tokens: dict[str, Token] = {}

    def read(self, root: yaml.Node) -> None:
        """Policies first, wherever they stand: tokens name them."""
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
            self._nodes.add(fields["name"], where, f"there is a policy {name!r} before: merge them, or rename one")
        elif name is not None:
            self.policies[name] = Policy(name, rules)

    def _token(self, node: yaml.Node, path: str) -> None:
        values = self._values(node, path, TOKEN_CHECKS, _TOKEN_NEEDS)
        if values is None:
            return
        token = Token(**values)
        if self.tokens.setdefault(token.accessor, token) is not token:
            self._nodes.add(node, path, f"there is a token {token.accessor!r} before: make a new one, or keep one")

    def _values(
        self, node: yaml.Node, path: str, checks: Mapping[str, Check], required: Collection[str]
    ) -> dict[str, Any] | None:
        """The values of a map's fields, or None when anything is wrong with one; that is noted then."""
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
        """A list, each text of which is told what is wrong with it at its own place."""
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
    """A time for people; seconds where that says as much only so."""
    try:
        text = datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return seconds
    return text if _seconds(text) == seconds else seconds


def _seconds(text: str) -> float | None:
    """The seconds since the epoch that a text says, or None."""
    if _SECONDS.match(text):
        return float(text)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()
