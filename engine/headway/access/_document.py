"""An access file, which only its owner may access: its format, reading it, and adding a token to it.

It has policies with rules, tokens and issuers bound to policies, and limits on calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from collections.abc import Mapping as Known
from typing import Any, cast

from headway.access._content import Access, policy_problem
from headway.access._issuers import BINDING_CHECKS, ISSUER_CHECKS, Binding, Issuer, Value
from headway.access._jwks import Keys, check_joserfc
from headway.access._limits import LIMIT_CHECKS, Limit
from headway.access._policy import POLICY_CHECKS, RULE_CHECKS, Check, Policy, Rule
from headway.access._tokens import TOKEN_CHECKS, Token, redacted
from headway.base import exposure
from headway.documents import Mapping, Node, Place, Problems, Scalar, Sequence, below, decode, parse
from headway.errors import InvalidArgument, ManifestError, Problem
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
_ISSUER_NEEDS = ("name", "issuer", "audiences", "bindings")

_SHAPES = {Scalar: "scalar", Sequence: "sequence", Mapping: "mapping"}

_Read = Callable[[Node, str, Check], object]

KeysIn = Callable[[Issuer], tuple[Issuer, Keys | None]]
"""A function that reads the files of an issuer: it returns the issuer with their full paths, and its keys if they are
in a file. It raises InvalidArgument for a file that cannot be used, with the name of its field as the first word."""


def read_access(text: str, *, source: str = "<text>", keys_in: KeysIn | None = None) -> Access:
    """Return the policies, tokens, issuers and limits of a YAML text. Raises ManifestError with the problems, in order.

    Without ``keys_in``, the files of issuers are not read.
    """
    problems = Problems(source, redacted)
    reader = _Reader(problems, keys_in)
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
    return Access(
        reader.policies.values(), reader.tokens.values(), reader.issuers.values(), reader.keys, reader.limits.values()
    )


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

    def __init__(self, problems: Problems, keys_in: KeysIn | None) -> None:
        self._problems = problems
        self._keys_in = keys_in
        self.policies: dict[str, Policy] = {}
        self.tokens: dict[str, Token] = {}
        self.issuers: dict[str, Issuer] = {}
        self.keys: dict[str, Keys] = {}
        self.limits: dict[str, Limit] = {}

    def read(self, root: Node) -> None:
        """Read the policies first, wherever they are in the file, because tokens, bindings and limits refer to them."""
        fields = self._mapping(root, "", ("policies", "tokens", "issuers", "limits"))
        readers = (self._policy, self._token, self._issuer, self._limit)
        for name, read in zip(("policies", "tokens", "issuers", "limits"), readers, strict=True):
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

    def _issuer(self, node: Node, path: str) -> None:
        before = len(self._problems)
        values = self._values(node, path, ISSUER_CHECKS, _ISSUER_NEEDS)
        if values is None or len(self._problems) > before:
            return
        try:
            issuer, keys = Issuer(**values), None
            if self._keys_in is not None:
                issuer, keys = self._keys_in(issuer)
        except InvalidArgument as error:
            # Its fields are right one by one, so this is about several of them, or about a file.
            self._problems.add(node.place, path, str(error).removeprefix("issuer: "))
            return
        for other in self.issuers.values():
            for name in ("name", "issuer"):
                if getattr(other, name) == (value := getattr(issuer, name)):
                    problem = f"duplicate {name} {value!r}: merge the two, or rename one"
                    self._problems.add(node.place, below(path, name), problem)
        self.issuers.setdefault(issuer.name, issuer)
        if keys is not None:
            self.keys[issuer.name] = keys

    def _bindings(self, node: Node, path: str, check: Check) -> list[Binding]:
        bindings = []
        for item, where in self._items(node, path):
            values = self._values(item, where, BINDING_CHECKS, ("claims", "policies"))
            if values is not None:
                bindings.append(Binding(**values))
        if isinstance(node, Sequence) and not node.items:
            for problem in check([]):
                self._problems.add(node.place, path, problem)
        return bindings

    def _claims(self, node: Node, path: str, check: Check) -> dict[str, list[Value]]:
        """Return the expected values of claims. Here, unlike elsewhere, the type that YAML gives a value matters."""
        if not isinstance(node, Mapping):
            right = "expected a mapping of claims to values, such as {groups: ops}; write {} for every login"
            self._problems.add(node.place, path, f"{right}; got a {_SHAPES[type(node)]}")
            return {}
        found: dict[str, list[Value]] = {}
        for key, held in node.entries:
            where = below(path, key.text)
            if key.text in found:
                # Keys of different kinds, such as `on` and `"on"`. To drop one of them would accept more logins.
                self._problems.add(key.place, where, f"the claim {key.text!r} was already given: keep one of them")
            items = self._items(held, where) if isinstance(held, Sequence) else [(held, where)]
            values = [self._value(item, at) for item, at in items]
            found[key.text] = [value for value in values if value is not None]
            if len(found[key.text]) == len(values):
                for problem in check({key.text: values}):
                    self._problems.add(key.place, path, problem)
        return found

    def _value(self, node: Node, path: str) -> Value | None:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, Value):
            return value
        shown = node.described() if isinstance(node, Scalar) else f"a {_SHAPES[type(node)]}"
        right = "must be a text, true, false or a whole number; write a text that looks like another type in quotes"
        self._problems.add(node.place, path, f"the value {right}; got {shown}")
        return None

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
        value = float(text) if _SECONDS.match(text) else None
        for problem in check(text if value is None else value):
            self._problems.add(node.place, path, problem)
        return value

    def _count(self, node: Node, path: str, check: Check) -> float | None:
        text = self._scalar(node, path)
        if text is None:
            return None
        # If the text is not a number, it stays a text, and the check refuses it.
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
    "per_second": "_count",
    "burst": "_count",
    "audiences": "_words",
    "algorithms": "_words",
    "bindings": "_bindings",
    "claims": "_claims",
    "leeway": "_number",
    "refresh_interval": "_number",
    "stale_limit": "_number",
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


_ROOT = 0
# At the end of a file. People who start one write an empty `tokens:`, which is not yet a list.
_NO_TOKENS = re.compile(r"^tokens:[ \t]*(\[\])?\s*\Z", re.MULTILINE)


def load_access(path: str | os.PathLike[str]) -> Access:
    """Return the content of an access file. To apply a changed file, load it again and call ``Authorizer.replace``.

    The files that its issuers name are read too. Their paths are relative to the directory of ``path``.

    Raises:
        DeclarationError: it has issuers, and the libraries for them are not installed.
        ManifestError: with the problems of the file. Also if users other than its owner can read or change it (they
            could give themselves access), or if it belongs to neither this process's user nor root.
        OSError: the file cannot be read.
    """
    # Links are not resolved: Kubernetes replaces the directory behind the link of a mounted file at each change.
    directory = os.path.dirname(os.path.abspath(path))
    return read_access(_content(path), source=os.fspath(path), keys_in=functools.partial(_issuer_files, directory))


def _issuer_files(directory: str, issuer: Issuer) -> tuple[Issuer, Keys | None]:
    """Read the files of an issuer. Raises InvalidArgument if one cannot be used."""
    from headway.access._key_sources import KeysUnavailable, check_h11, context_for, keys_in

    check_joserfc()
    if issuer.jwks_file:
        issuer = dataclasses.replace(issuer, jwks_file=os.path.join(directory, issuer.jwks_file))
        try:
            return issuer, keys_in(issuer.jwks_file)
        except KeysUnavailable as error:
            raise InvalidArgument(f"jwks_file {error}; name a file such as keys.json, with a JWKS") from None
    check_h11()
    if issuer.authority:
        issuer = dataclasses.replace(issuer, authority=os.path.join(directory, issuer.authority))
        try:
            context_for(issuer.authority)
        except OSError as error:
            why = error.strerror or error
            raise InvalidArgument(
                f"authority {issuer.authority}: {why}; name a file such as ca.pem, with certificates"
            ) from None
    return issuer, None


def add_token(path: str | os.PathLike[str], token: Token) -> None:
    """Add a token at the end of an access file. The rest of the file stays exactly as it is.

    The file is replaced atomically, so that a concurrent reader sees all of it, before or after. Root may add to a file
    of any user, which stays that user's.

    Raises the errors of `load_access`, and InvalidArgument if the token names a policy that does not exist, or if the
    layout of the file does not allow another token to be added.
    """
    source, path = os.fspath(path), os.path.realpath(path)
    # Root may do this for any owner: the file goes back to its owner, who could have written the same.
    text = _content(path, source, any_owner=os.name == "posix" and os.geteuid() == _ROOT)
    before = read_access(_NO_TOKENS.sub("tokens: []\n", text), source=source)
    for name in token.policies:
        if problem := policy_problem(name, before.policies):
            raise InvalidArgument(f"{source}: {problem}")
    if text and not text.endswith("\n"):
        text += "\n"
    text = _NO_TOKENS.sub("tokens:\n", text)
    for joined in (text + entry(token), f"{text}tokens:\n{entry(token)}"):
        try:
            after = read_access(joined, source=source)
        except ManifestError:
            continue
        kept = (after.policies, after.issuers, after.limits) == (before.policies, before.issuers, before.limits)
        if kept and [*after.tokens] == [
            *before.tokens,
            token,
        ]:
            _replace(path, joined)
            return
    raise InvalidArgument(
        f"{source}: the file must end with its list of tokens, one below the other: add the entry by hand"
    )


def _replace(path: str, text: str) -> None:
    # mkstemp creates a file that only its owner can access, as required.
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f"{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            before = os.stat(path)
            if os.geteuid() == _ROOT:
                # The server may be another user, who reads the file as its owner or through its group.
                os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _content(path: str | os.PathLike[str], source: str = "", *, any_owner: bool = False) -> str:
    """Return the text of an access file, which must be as private as a secret. With ``any_owner``, it may belong to
    any user.
    """
    source = source or os.fspath(path)
    with open(path, "rb") as file:
        # Check the open file and not the path, which may refer to another file by now.
        found = os.fstat(file.fileno())
        user = found.st_uid if any_owner else os.geteuid()
        if os.name == "posix" and (problem := exposure(found, user)):
            remedy = f"chown {user}" if problem.startswith("belongs") else "chmod 600"
            raise ManifestError([Problem(source, 1, 1, "", f"this file {problem}: {remedy} {source}")])
        content = file.read()
    return decode(content, source)
