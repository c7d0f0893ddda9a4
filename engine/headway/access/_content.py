"""The content of an access file, in memory: policies, tokens and issuers, and how two contents differ. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headway.access._limits import Limit
from headway.access._login import Login
from headway.access._policy import Policy, Rights
from headway.access._tokens import Token, TokenSet
from headway.errors import InvalidArgument
from headway.resource import did_you_mean

if TYPE_CHECKING:
    from headway.access._issuers import Issuer
    from headway.access._jwks import Keys

ANONYMOUS = "anonymous"
"""The name of the policy for callers without a token, if a policy has this name. Callers with a token do not get it."""

# The maximum number of policy or caller names in one event.
_NAMED = 20
# The number of sets of policies whose rights are kept. The claims of logins can make many.
_MOST_RIGHTS = 1_000


class Access:
    """Policies, and the tokens and the issuers of logins bound to them: the content of an access file.

    An empty one denies everything.

    Args:
        policies: the policies.
        tokens: the tokens.
        issuers: the issuers of logins.
        keys: the keys of issuers, by name, that are known from the beginning, such as from a ``jwks_file``.
        limits: the limits on how often callers may call.

    Raises:
        InvalidArgument: two policies or two issuers have the same name, or two issuers the same claim ``iss``, or a
            token or a binding names a policy that does not exist.
        DeclarationError: there are issuers, and the library for them is not installed.
    """

    __slots__ = ("_rights", "issuers", "keys", "limits", "policies", "tokens")

    def __init__(
        self,
        policies: Iterable[Policy] = (),
        tokens: Iterable[Token] = (),
        issuers: Iterable[Issuer] = (),
        keys: Mapping[str, Keys] | None = None,
        limits: Iterable[Limit] = (),
    ) -> None:
        self.policies: dict[str, Policy] = {}
        for policy in policies:
            if self.policies.setdefault(policy.name, policy) is not policy:
                raise InvalidArgument(f"policies: duplicate name {policy.name!r}; merge the two, or rename one")
        self.tokens = TokenSet(tokens)
        self.issuers = by_name(issuers)
        self.keys = dict(keys or {})
        # Tokens with the same policies share their rights: there are many tokens, but few such sets of policies.
        self._rights: dict[tuple[str, ...], Rights] = {}
        for token in self.tokens:
            for name in token.policies:
                if problem := policy_problem(name, self.policies):
                    raise InvalidArgument(f"token {token.accessor}: {problem}")
        for issuer in self.issuers.values():
            for name in (name for binding in issuer.bindings for name in binding.policies):
                if problem := policy_problem(name, self.policies):
                    raise InvalidArgument(f"issuer {issuer.name}: {problem}")

        self.limits: dict[str, Limit] = {}
        for limit in limits:
            if self.limits.setdefault(limit.name, limit) is not limit:
                raise InvalidArgument(f"limits: duplicate name {limit.name!r}; keep one of the two, or rename one")
            for name in limit.policies or ():
                if problem := policy_problem(name, self.policies):
                    raise InvalidArgument(f"limit {limit.name}: {problem}")

    def rights(self, token: Token | Login | None) -> Rights:
        """Return the rights of one of the tokens, of a login, or of anonymous callers for None."""
        names = tuple(token.policies) if token is not None else (ANONYMOUS,) if ANONYMOUS in self.policies else ()
        rights = self._rights.get(names)
        if rights is None:
            rights = Rights(self.policies[name] for name in names)
            if len(self._rights) < _MOST_RIGHTS:
                self._rights[names] = rights
        return rights


def policy_problem(name: str, policies: Mapping[str, object]) -> str | None:
    """Return a problem if a token names a policy that does not exist; otherwise None."""
    return None if name in policies else f"policies: policy {name!r} not found{did_you_mean(name, policies)}"


def by_name(issuers: Iterable[Issuer]) -> dict[str, Issuer]:
    """Return issuers by their names. Raises as `Access`."""
    found: dict[str, Issuer] = {}
    names: dict[str, str] = {}
    for issuer in issuers:
        if found.setdefault(issuer.name, issuer) is not issuer:
            raise InvalidArgument(f"issuers: duplicate name {issuer.name!r}; merge the two, or rename one")
        if names.setdefault(issuer.issuer, issuer.name) != issuer.name:
            raise InvalidArgument(
                f"issuers: {names[issuer.issuer]} and {issuer.name} have the same issuer {issuer.issuer!r}; merge them"
            )
    if found:
        # Imported here, as in `Authorizer`: only a server with issuers needs it.
        from headway.access._jwks import check_joserfc

        check_joserfc()
    return found


def differing(before: Access, after: Access) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the policies that differ, of the callers whose tokens or policies differ, and of the limits
    that differ.
    """
    names = before.policies.keys() | after.policies.keys()
    policies = {name for name in names if before.policies.get(name) != after.policies.get(name)}
    tokens = {token.accessor: token for access in (before, after) for token in access.tokens}
    callers = [
        token.name
        for accessor, token in tokens.items()
        if before.tokens.get(accessor) != after.tokens.get(accessor) or not policies.isdisjoint(token.policies)
    ]
    issuers = {issuer.name: issuer for access in (before, after) for issuer in access.issuers.values()}
    callers += [
        f"logins of {name}"
        for name, issuer in issuers.items()
        if before.issuers.get(name) != after.issuers.get(name)
        or any(not policies.isdisjoint(binding.policies) for binding in issuer.bindings)
    ]
    names = before.limits.keys() | after.limits.keys()
    limits = {name for name in names if before.limits.get(name) != after.limits.get(name)}
    return sorted(policies), [*([ANONYMOUS] if ANONYMOUS in policies else []), *sorted(callers)], sorted(limits)


def first_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that fit into one line of a log."""
    return (*names[:_NAMED], f"and {len(names) - _NAMED} more") if len(names) > _NAMED else tuple(names)
