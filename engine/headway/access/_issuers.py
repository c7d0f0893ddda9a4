"""The issuers of logins: their URLs, audiences and algorithms, and the policies that claims give. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from headway.access._https import https_url
from headway.access._jwt_text import usual_algorithm
from headway.access._policy import Check, check_fields
from headway.base import repr_text
from headway.errors import InvalidArgument
from headway.resource import did_you_mean, name_problem

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The algorithms that an issuer may be allowed. All of them have a public key, which cannot sign."""
USUAL_ALGORITHMS = ("RS256", "ES256", "EdDSA")

Value = str | bool | int
"""A value that a binding expects of a claim."""

_LONGEST = 500
# The largest values of times, in seconds.
_MOST = {"leeway": 300, "refresh_interval": 86_400, "stale_limit": 7 * 86_400}
_LEAST = {"leeway": 0, "refresh_interval": 10, "stale_limit": 60}


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A rule that gives policies to logins: if every claim has one of its values, the login has the policies.

    Raises InvalidArgument with all of its problems.

    Attributes:
        claims: the expected values of claims. A claim that is a list has each of its items. A name that begins with
            ``/`` is a JSON pointer to a claim within others, such as ``/realm_access/roles``. An empty mapping is every
            login of the issuer.
        policies: the names of the policies.
    """

    claims: Mapping[str, Value | Collection[Value]]
    policies: Collection[str]
    _expected: tuple[tuple[tuple[str, ...], tuple[Value, ...]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields("binding", self, BINDING_CHECKS)
        claims = {name: tuple(map(_as_json_has_it, _values(value))) for name, value in self.claims.items()}
        object.__setattr__(self, "claims", claims)
        object.__setattr__(self, "policies", tuple(self.policies))
        object.__setattr__(self, "_expected", tuple((_path(name), values) for name, values in claims.items()))

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Return True if a login with these claims has the policies."""
        return all(_has(claims, path, values) for path, values in self._expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An issuer of JWTs, and the policies that its logins have.

    Its public keys come from a file, or from the issuer itself by OpenID Connect discovery over HTTPS.
    Raises InvalidArgument with all of its problems.

    Attributes:
        name: its name in logs and metrics.
        issuer: the exact value of the claim ``iss``.
        audiences: the accepted values of ``aud``. A login must have one of them.
        bindings: the rules that give policies. A login that matches none is refused.
        algorithms: the accepted algorithms of signatures. ALGORITHMS has all that are possible; Ed25519 is another name
            of EdDSA.
        jwks_file: the path of a file with its keys as a JWKS; empty for discovery.
        authority: the path of a file with the authorities to trust for HTTPS; empty for the system's.
        leeway: the largest difference between its clock and this one, in seconds.
        refresh_interval: the time between two readings of its keys, in seconds.
        stale_limit: the time, in seconds, during which known keys are used although they cannot be read again.
    """

    name: str
    issuer: str
    audiences: Collection[str]
    bindings: Collection[Binding]
    algorithms: Collection[str] = USUAL_ALGORITHMS
    jwks_file: str = ""
    authority: str = ""
    leeway: float = 30
    refresh_interval: float = 300
    stale_limit: float = 86_400

    def __post_init__(self) -> None:
        check_fields("issuer", self, ISSUER_CHECKS)
        if problem := issuer_problem(self):
            raise InvalidArgument(f"issuer: {problem}")
        for name in ("audiences", "bindings"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "algorithms", tuple(map(usual_algorithm, self.algorithms)))

    def policies_of(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the policies of a login with these claims; none if no binding matches.

        They are sorted: a login has the same policies in whatever order the bindings are written.
        """
        return tuple(sorted({name for each in self.bindings if each.matches(claims) for name in each.policies}))

    def has_same_keys(self, other: Issuer) -> bool:
        """Return True if the keys of both come from the same place."""
        return (self.issuer, self.jwks_file, self.authority) == (other.issuer, other.jwks_file, other.authority)


def _values(given: Value | Collection[Value]) -> tuple[Value, ...]:
    return (given,) if isinstance(given, str | bool | int) else tuple(given)


def _as_json_has_it(value: Value) -> Value:
    """Return a value in the type that JSON gives it: a member of an enum is a text or a number of another type."""
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else str.__str__(value)


def _path(name: str) -> tuple[str, ...]:
    """Return the keys that lead to a claim."""
    if not name.startswith("/"):
        return (name,)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in name[1:].split("/"))


def _has(claims: Mapping[str, Any], path: tuple[str, ...], values: tuple[Value, ...]) -> bool:
    found: object = claims
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return False
        found = found[key]
    if path == ("scope",) and isinstance(found, str):
        # OAuth has its scopes in one text, separated by spaces.
        found = found.split(" ")
    items = found if isinstance(found, list) else [found]
    # Of the same class: in Python, True equals 1.
    return any(type(item) is type(value) and item == value for item in items for value in values)


def issuer_problem(issuer: Issuer) -> str | None:
    """Return the first problem of several fields of an issuer together, or None."""
    if not issuer.jwks_file and (problem := _url_problem(issuer.issuer)):
        return f"issuer {issuer.issuer!r} {problem}; or give its keys in a jwks_file"
    if issuer.jwks_file and issuer.authority:
        return "authority is for discovery over HTTPS, and jwks_file replaces discovery: give one of them"
    if issuer.stale_limit < issuer.refresh_interval:
        return (
            f"stale_limit {issuer.stale_limit:g} must be at least refresh_interval ({issuer.refresh_interval:g}), "
            "because the keys would be dropped before they are read again"
        )
    return None


def _url_problem(text: str) -> str | None:
    """Return why a text is not the URL of an issuer with discovery, or None."""
    if https_url(text) is None or "?" in text:
        return "must be an https:// URL without a user, query or fragment, such as https://login.example.com"
    return None


def _is_line(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable() and value == value.strip()


def _name_problems(value: object) -> Iterator[str]:
    if problem := name_problem("name", value):
        yield problem


def _issuer_problems(value: object) -> Iterator[str]:
    if not _is_line(value):
        yield f"issuer {repr_text(value)} must be the exact text of the claim iss, such as 'https://login.example.com'"


def _audiences_problems(value: object) -> Iterator[str]:
    if isinstance(value, str) or not isinstance(value, Collection):
        yield f"audiences {repr_text(value)} must be a list of texts, such as ['headway']"
    elif not value:
        yield "audiences is empty: name what the claim aud must have, such as 'headway'"
    else:
        for each in value:
            if not _is_line(each):
                yield f"audiences: {repr_text(each)} must be one line of printable text, such as 'headway'"


def _algorithms_problems(value: object) -> Iterator[str]:
    if isinstance(value, str) or not isinstance(value, Collection):
        yield f"algorithms {repr_text(value)} must be a list of names, such as ['RS256', 'ES256']"
    elif not value:
        yield f"algorithms is empty: use any of {', '.join(ALGORITHMS)}"
    else:
        for each in value:
            if isinstance(each, str) and usual_algorithm(each) in ALGORITHMS:
                continue
            if isinstance(each, str) and each.upper().startswith("HS"):
                yield f"algorithms: {each!r} signs with a shared secret, which a public key is not; use 'RS256'"
            elif isinstance(each, str) and each.lower() == "none":
                yield f"algorithms: {each!r} accepts tokens that nobody has signed; use 'RS256'"
            else:
                yield f"algorithms: {str(each)[:100]!r} is not allowed{did_you_mean(str(each)[:100], ALGORITHMS)}"


def _bindings_problems(value: object) -> Iterator[str]:
    if isinstance(value, str) or not isinstance(value, Collection):
        yield f"bindings {repr_text(value)} must be a list of bindings"
    elif not value:
        yield "bindings is empty, so that every login would be refused: add one, such as " + _BINDING
    elif not all(isinstance(each, Binding) for each in value):
        right = "Binding(claims={'groups': 'ops'}, policies=['ops'])"
        yield f"bindings {repr_text(value)} must be bindings, such as {right}"


def _path_problems(name: str) -> Check:
    def problems(value: object) -> Iterator[str]:
        if not isinstance(value, str) or "\0" in value:
            yield f"{name} {repr_text(value)} must be the path of a file"

    return problems


def _span_problems(name: str) -> Check:
    def problems(value: object) -> Iterator[str]:
        least, most = _LEAST[name], _MOST[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            yield f"{name} {repr_text(value)} must be a number of seconds from {least} to {most}, such as {least + 30}"

    return problems


def _claims_problems(value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"claims {repr_text(value)} must be a mapping of claims to values, such as {{groups: ops}}"
        return
    for name, each in value.items():
        if not _is_line(name):
            yield f"claims: {repr_text(name)} must be the name of a claim, such as 'groups', or '/realm_access/roles'"
            continue
        if not isinstance(each, Value | Collection) or isinstance(each, Mapping | bytes):
            yield f"claims: {name} {repr_text(each)} must be a text, true, false, a whole number, or a list of them"
            continue
        values = _values(cast("Value | Collection[Value]", each))
        if not values:
            yield f"claims: {name} is empty, so that no login would match: give a value"
        for item in values:
            if not isinstance(item, Value):
                yield f"claims: {name} {repr_text(item)} must be a text, true, false or a whole number"


def _policies_problems(value: object) -> Iterator[str]:
    if isinstance(value, str) or not isinstance(value, Collection):
        yield f"policies {repr_text(value)} must be a list of the names of policies"
        return
    for name in value:
        if problem := name_problem("the name", name):
            yield f"policies: {problem}"


_BINDING = "{claims: {groups: ops}, policies: [operators]}"

BINDING_CHECKS: dict[str, Check] = {"claims": _claims_problems, "policies": _policies_problems}

ISSUER_CHECKS: dict[str, Check] = {
    "name": _name_problems,
    "issuer": _issuer_problems,
    "audiences": _audiences_problems,
    "bindings": _bindings_problems,
    "algorithms": _algorithms_problems,
    "jwks_file": _path_problems("jwks_file"),
    "authority": _path_problems("authority"),
    "leeway": _span_problems("leeway"),
    "refresh_interval": _span_problems("refresh_interval"),
    "stale_limit": _span_problems("stale_limit"),
}
