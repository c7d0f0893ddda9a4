"""Who is asking, and may they: from a request's metadata to an identity, and from an identity to yes or no."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn

from headway._safe_report import safe_report
from headway.access._policy import Policy, Rights, Verb
from headway.access._tokens import REFUSED, Token, TokenSet
from headway.errors import InvalidArgument, PermissionDenied
from headway.events import AccessChanged, Report
from headway.resource import TypeName, did_you_mean

ANONYMOUS = "anonymous"
"""The name of the policy that callers without a token have, if there is one of that name. Others don't have it too."""

LEASE = TypeName("internal", "v1", "Lease")
"""What leases are to a rule: a type without a tenancy. No program can have one of this group."""

TOKEN_KEY = "x-consul-token"
AUTHORIZATION_KEY = "authorization"

Clock = Callable[[], float]

# Names of policies, and of callers, in one event.
_NAMED = 20


class Question(NamedTuple):
    """What a caller may or may not do: a verb on a resource, or on a scope, whose units may be ``*``.

    ``use`` stands for any verb at all.
    """

    verb: Verb | Literal["use"]
    type: TypeName
    partition: str
    namespace: str
    name: str
    lacking: str = "covers all of it"
    """What no rule of the caller does."""

    def rule(self) -> str:
        """The narrowest rule that allows it, as it stands in an access file."""
        prefix = f", name_prefix: {json.dumps(self.name)}" if self.name else ""
        partition, namespace = json.dumps(self.partition), json.dumps(self.namespace)
        return f"{{verbs: [{self.verb}], type: {self.type}, partition: {partition}, namespace: {namespace}{prefix}}}"


class Access:
    """Policies, and tokens bound to them: all that an access file says. Without any, nobody may do anything.

    Raises InvalidArgument when two policies have one name, or a token names one that isn't there.
    """

    __slots__ = ("_rights", "policies", "tokens")

    def __init__(self, policies: Iterable[Policy] = (), tokens: Iterable[Token] = ()) -> None:
        self.policies: dict[str, Policy] = {}
        for policy in policies:
            if self.policies.setdefault(policy.name, policy) is not policy:
                raise InvalidArgument(f"policies: two have the name {policy.name!r}; merge them, or rename one")
        self.tokens = TokenSet(tokens)
        # Tokens with the same policies share their rights; there are few such sets, and many tokens.
        self._rights: dict[tuple[str, ...], Rights] = {}
        for token in self.tokens:
            for name in token.policies:
                if problem := policy_problem(name, self.policies):
                    raise InvalidArgument(f"token {token.accessor}: {problem}")

    def rights(self, token: Token | None) -> Rights:
        """What the bearer of one of the tokens may do; without a token, what anyone may."""
        names = tuple(token.policies) if token is not None else (ANONYMOUS,) if ANONYMOUS in self.policies else ()
        rights = self._rights.get(names)
        if rights is None:
            rights = self._rights[names] = Rights(self.policies[name] for name in names)
        return rights


def policy_problem(name: str, policies: Mapping[str, object]) -> str | None:
    """What is wrong with a token's naming this policy, or None."""
    return None if name in policies else f"policies: there is no policy {name!r}{did_you_mean(name, policies)}"


class Authorizer:
    """Answers for one server. A request is identified once, and its identity asked as often as need be.

    Args:
        access: what holds until it is replaced.
        clock: seconds since the epoch, for the expiry of tokens.
    """

    def __init__(self, access: Access, *, clock: Clock = time.time) -> None:
        self._access = access
        self._clock = clock
        self._followed: dict[object, tuple[Identity, Callable[[], None]]] = {}
        self._reports: dict[object, Report] = {}

    def replace(self, access: Access) -> None:
        """From now on this holds. Identities end unless their token still holds and means the same."""
        before, self._access = self._access, access
        count = 0
        for identity, ended in list(self._followed.values()):
            if not identity.is_current():
                count += 1
                ended()
        policies, callers = _differing(before, access)
        if policies or callers:
            for report in list(self._reports.values()):
                report(AccessChanged(_first(policies), _first(callers), count))

    def hear(self, report: Report) -> Callable[[], object]:
        """Report every change of what holds, as `AccessChanged`. Call what is returned to stop that."""
        key = object()
        self._reports[key] = safe_report(report)
        return functools.partial(self._reports.pop, key, None)

    def follow(self, identity: Identity, ended: Callable[[], None]) -> Callable[[], object]:
        """Call ``ended`` when a change of what holds has ended an identity; not when its token expires, which is known
        beforehand (`Identity.expires_in`). Call what is returned when that is not of interest any more.
        """
        key = object()
        self._followed[key] = identity, ended
        return functools.partial(self._followed.pop, key, None)

    @property
    def followed(self) -> int:
        """How many identities are followed."""
        return len(self._followed)

    def identify(self, metadata: Mapping[str, str]) -> Identity:
        """Who sent a request with this metadata; nobody in particular when it has no token.

        Raises PermissionDenied when it has one that doesn't hold: who presents a token must not be served as someone
        else, and be left to wonder why so much is missing.
        """
        text = _presented(metadata)
        token = None if text is None else self._access.tokens.find(text, self._clock())
        return Identity(self, token, self._access)

    def refusal(self, metadata: Mapping[str, str]) -> tuple[str | None, str]:
        """Return for the operator which token `identify` has refused, if there is one of that name, and why."""
        try:
            text = _presented(metadata)
        except PermissionDenied:
            return None, "the authorization is no bearer token"
        return self._access.tokens.refusal(text or "")

    def _access_of(self, identity: Identity) -> Access | None:
        """The access under which an identity may go on, if there is one."""
        access, token = self._access, identity.token
        if access is not identity.access:
            if token is not None and access.tokens.get(token.accessor) != token:
                return None
            if access.rights(token).policies != identity.access.rights(token).policies:
                return None
        return access if token is None or token.holds(self._clock()) else None


def _differing(before: Access, after: Access) -> tuple[list[str], list[str]]:
    """The names of the policies that differ, and those of the callers whose tokens, or whose policies, do."""
    names = before.policies.keys() | after.policies.keys()
    policies = {name for name in names if before.policies.get(name) != after.policies.get(name)}
    tokens = {token.accessor: token for access in (before, after) for token in access.tokens}
    callers = [
        token.name
        for accessor, token in tokens.items()
        if before.tokens.get(accessor) != after.tokens.get(accessor) or not policies.isdisjoint(token.policies)
    ]
    return sorted(policies), [*([ANONYMOUS] if ANONYMOUS in policies else []), *sorted(callers)]


def _first(names: Sequence[str]) -> tuple[str, ...]:
    """As many names as a line of a log can take."""
    return (*names[:_NAMED], f"and {len(names) - _NAMED} more") if len(names) > _NAMED else tuple(names)


class Identity:
    """Who is asking. It is what one request, however long it takes, is judged by."""

    __slots__ = ("_authorizer", "_rights", "access", "denied", "token")

    def __init__(self, authorizer: Authorizer, token: Token | None, access: Access) -> None:
        self._authorizer = authorizer
        self.token = token
        self.access = access
        self._rights = access.rights(token)
        self.denied: Question | None = None
        """What it was asked last that it doesn't allow."""

    def __repr__(self) -> str:
        return f"<Identity {self.name}>"

    @property
    def name(self) -> str:
        """The name of the token, for logs; ``anonymous`` without one."""
        return ANONYMOUS if self.token is None else self.token.name

    def is_current(self) -> bool:
        """Whether the token still holds and still means what it meant.

        A stream has to end when it doesn't, and its caller to ask anew: what would be left out from then on, or has
        been sent before and would not be now, leaves the caller with a picture that never was.
        """
        access = self._authorizer._access_of(self)
        if access is not None:
            # The same by another load: not to be compared again.
            self.access = access
        return access is not None

    def expires_in(self) -> float:
        """Seconds until the token expires; infinity when it doesn't."""
        expires_at = None if self.token is None else self.token.expires_at
        return math.inf if expires_at is None else expires_at - self._authorizer._clock()

    def concerns(self, type: TypeName) -> bool:
        """Whether the bearer may do anything at all with the type, anywhere."""
        if self._rights.concern(type) and self.is_current():
            return True
        self.denied = Question("use", type, "", "", "")
        return False

    def allows(self, verb: Verb, type: TypeName, partition: str, namespace: str, name: str) -> bool:
        """Whether the bearer may do that now. See ``Rights.allows``. It neither waits nor raises."""
        if self._rights.allows(verb, type, partition, namespace, name) and self.is_current():
            return True
        self.denied = Question(verb, type, partition, namespace, name)
        return False

    def allows_any(self, verb: Verb, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        """Return True if the bearer may do that now with any part of this scope."""
        if self._rights.allow_any(verb, type, partition, namespace, name_prefix) and self.is_current():
            return True
        self.denied = Question(verb, type, partition, namespace, name_prefix, f"lets you {verb} any of it")
        return False

    def missing(self) -> str | None:
        """Return what is missing for what was denied last, and the rule to ask for, if the bearer may hear of it.

        That is one who may do something else with the type. The rule of a lease may be heard by everybody who may do
        anything at all, because every server has leases.
        """
        if self.denied is None or not self.is_current():
            return None
        type = self.denied.type
        if not self._rights.concern(type) and not (type == LEASE and self._rights.policies):
            return None
        return f"no rule of yours {self.denied.lacking}; ask for one such as {self.denied.rule()}"

    def check(self, verb: Verb, type: TypeName, partition: str, namespace: str, name: str) -> None:
        """Raise PermissionDenied unless that is allowed. What it says depends on the question alone."""
        if not self.allows(verb, type, partition, namespace, name):
            _deny(verb, type, partition, namespace, name)


def _deny(verb: str, type: TypeName, partition: str, namespace: str, name: str) -> NoReturn:
    units = "/".join(unit for unit in (partition, namespace) if unit)
    where = f" in {units}" if units else ""
    raise PermissionDenied(f"{verb} of {type} {name!r}{where} is not allowed to this caller: ask for a policy with it")


def _presented(metadata: Mapping[str, str]) -> str | None:
    """The text of the token that a request bears. Clients made for Consul send an empty one for none."""
    text = metadata.get(TOKEN_KEY)
    if text:
        return text
    credentials = metadata.get(AUTHORIZATION_KEY)
    if not credentials:
        return None
    scheme, _, text = credentials.partition(" ")
    if scheme.lower() != "bearer":
        raise PermissionDenied(REFUSED)
    return text.strip()
