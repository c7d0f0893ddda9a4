"""Authentication and authorization: find the caller of a request by its token, and check the caller's permissions."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, NoReturn

from headway.access._content import ANONYMOUS, Access, differing, first_names
from headway.access._jwt_text import JwtRefused, looks_like_jwt
from headway.access._limiter import Limiter
from headway.access._login import Login
from headway.access._policy import ANY, Rule, Verb
from headway.access._tokens import REFUSED, Token
from headway.base import Count, checked, safe_report
from headway.errors import PermissionDenied, Unauthenticated
from headway.events import AccessChanged, Report
from headway.resource import TypeName
from headway.rpc import TOKEN_HEADER

LEASE = TypeName("internal", "v1", "Lease")
"""The type that stands for leases in rules. It has no tenancy. Programs cannot define types in this group."""

TOPIC = TypeName("internal", "v1", "Topic")
"""The type that stands for topics in rules. Its names are ``topic/subject``, and it has no tenancy."""

AUTHORIZATION_KEY = "authorization"
TWO_TOKENS = f"{TOKEN_HEADER} and {AUTHORIZATION_KEY} have different tokens: send one of them"
SEVERAL = "{} has {} values: send it once, with one token"

Clock = Callable[[], float]


class Denial(NamedTuple):
    """A permission that was denied: a verb on a resource, or on a scope whose units may be ``*``.

    ``use`` stands for any verb.
    """

    verb: Verb | Literal["use"]
    type: TypeName
    partition: str
    namespace: str
    name: str
    lacking: str = "covers all of it"
    """The end of the sentence "none of your rules ..."."""

    def rule(self) -> str:
        """Return the narrowest rule that allows it, in the syntax of an access file."""
        prefix = f", name_prefix: {json.dumps(self.name)}" if self.name else ""
        partition, namespace = json.dumps(self.partition), json.dumps(self.namespace)
        return f"{{verbs: [{self.verb}], type: {self.type}, partition: {partition}, namespace: {namespace}{prefix}}}"

    def part_of(self, rule: Rule) -> str:
        """Return the part of the scope that a rule covers: ``partition default, namespace blue``."""
        units = (("partition", self.partition, rule.partition), ("namespace", self.namespace, rule.namespace))
        parts = [f"{unit} {allowed}" for unit, asked, allowed in units if asked == ANY != allowed]
        if len(rule.name_prefix) > len(self.name):
            parts.append(f"names that begin with {rule.name_prefix}")
        return ", ".join(parts)


@checked(access="headway.access.load_access('access.yaml')")
class Authorizer:
    """The authorizer of one server. It identifies each request once. Use the returned `Identity` to check permissions.

    Args:
        access: the policies and tokens that apply until `replace` is called.
        clock: returns seconds since the epoch, for the expiry of tokens.
        max_streams: the maximum number of streams that one caller has open at the same time. Each takes memory, and
            each watch is asked about every commit.
    """

    def __init__(self, access: Access, *, clock: Clock = time.time, max_streams: Count = 10_000) -> None:
        self._access = access
        self._clock = clock
        # Imported here, to keep `import headway` light: only a server with access control needs it.
        from headway.access._logins import Logins

        self.logins = Logins(access.issuers, access.keys)
        """The logins that are accepted, with the keys of their issuers."""
        self.limiter = Limiter(access.limits.values())
        """The limits on calls, which `replace` changes too."""
        self.max_streams = max_streams
        self.streams: Counter[str] = Counter()
        """The open streams of each caller: of a token, or without one of a host."""
        self._followed: dict[object, tuple[Identity, Callable[[], None]]] = {}
        self._reports: dict[object, Report] = {}

    def replace(self, access: Access) -> None:
        """Apply new policies, tokens, issuers and limits.

        Identities end unless their token or login is still valid and has the same policies.
        """
        before, self._access = self._access, access
        self.logins.replace(access.issuers, access.keys)
        self.limiter.replace(access.limits.values())
        count = self.end_outdated()
        policies, callers, limits = map(first_names, differing(before, access))
        if policies or callers or limits:
            for report in list(self._reports.values()):
                report(AccessChanged(policies, callers, count, limits))

    def end_outdated(self) -> int:
        """End the streams whose identity has ended, and return their number."""
        count = 0
        for identity, ended in list(self._followed.values()):
            if not identity.is_current():
                count += 1
                ended()
        return count

    def subscribe(self, report: Report) -> Callable[[], object]:
        """Report every change of policies or tokens as `AccessChanged`. Call the returned function to stop."""
        key = object()
        self._reports[key] = safe_report(report)
        return functools.partial(self._reports.pop, key, None)

    def follow(self, identity: Identity, ended: Callable[[], None]) -> Callable[[], object]:
        """Call ``ended`` when a change of policies or tokens ends an identity. Call the returned function to stop.

        It is not called when the token expires, because that is known in advance (`Identity.expires_in`).
        """
        key = object()
        self._followed[key] = identity, ended
        return functools.partial(self._followed.pop, key, None)

    @property
    def followed(self) -> int:
        """The number of identities that are followed."""
        return len(self._followed)

    async def wait_for_keys(self, metadata: Mapping[str, str]) -> None:
        """Wait, for at most 5 seconds, if the keys of an issuer are read because of the login that a request carries.

        Call it before `identify`, so that the first login with a new key is accepted. It does not raise for a token
        that is not valid.
        """
        try:
            text = _presented(metadata)
        except Unauthenticated:
            return
        if text is not None and self._is_login(text):
            await self.logins.wait_for_key(text)

    def identify(self, metadata: Mapping[str, str]) -> Identity:
        """Return the identity of the sender of a request with this metadata, anonymous if it has no token.

        Raises Unauthenticated if the token is not valid, or if two headers have different ones. Such a caller is not
        anonymous: it would get incomplete results without an error.
        """
        text = _presented(metadata)
        token: Token | Login | None = None
        if text is not None and self._is_login(text):
            try:
                token = self.logins.find(text, self._clock())
            except JwtRefused:
                raise Unauthenticated(REFUSED) from None
        elif text is not None:
            token = self._access.tokens.find(text, self._clock())
        return Identity(self, token, self._access)

    def refusal(self, metadata: Mapping[str, str]) -> Refusal:
        """Return why `identify` has refused a token. For the operator only."""
        try:
            text = _presented(metadata) or ""
        except Unauthenticated as error:
            why = str(error)
            return Refusal(None, "the authorization header is not a bearer token" if why == REFUSED else why)
        if self._is_login(text):
            refused = self.logins.refusal(text, self._clock())
            why = f"{refused.issuer}: {refused.why}" if refused.issuer else refused.why
            return Refusal(refused.caller or None, why, refused.issuer, refused.reason)
        return Refusal(*self._access.tokens.refusal(text))

    def _is_login(self, text: str) -> bool:
        return bool(self._access.issuers) and looks_like_jwt(text)

    def _access_of(self, identity: Identity) -> Access | None:
        """Return the access under which an identity may continue, or None if it has ended."""
        access, token = self._access, identity.token
        if access is not identity.access:
            if isinstance(token, Login):
                if not self.logins.admits(token):
                    return None
            elif token is not None and access.tokens.get(token.accessor) != token:
                return None
            if access.rights(token).policies != identity.access.rights(token).policies:
                return None
        if isinstance(token, Login) and not self.logins.has_key_of(token):
            return None
        return access if token is None or token.holds(self._clock()) else None


class Refusal(NamedTuple):
    """Why a token was refused.

    Attributes:
        caller: the name of the token or login, if it exists.
        why: a sentence.
        issuer: for a JWT, the name of its issuer; empty if it is of none in the access file.
        reason: for a JWT, one word of a fixed set; empty for other tokens.
    """

    caller: str | None
    why: str
    issuer: str = ""
    reason: str = ""


class Identity:
    """The identity of a caller. A request keeps its identity until it ends."""

    __slots__ = ("_authorizer", "_rights", "access", "denied", "token")

    def __init__(self, authorizer: Authorizer, token: Token | Login | None, access: Access) -> None:
        self._authorizer = authorizer
        self.token = token
        self.access = access
        self._rights = access.rights(token)
        self.denied: Denial | None = None
        """The last permission that was denied."""

    def __repr__(self) -> str:
        return f"<Identity {self.name}>"

    @property
    def name(self) -> str:
        """The name of the token or login, for logs; ``anonymous`` without one."""
        return ANONYMOUS if self.token is None else self.token.name

    @property
    def account(self) -> str:
        """The public name of the token, or of the subject of a login. It is unique; empty without one."""
        return "" if self.token is None else self.token.accessor

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies that the caller has."""
        return tuple(policy.name for policy in self._rights.policies)

    def rights_digest(self) -> str:
        """Return a digest of the policies. It is the same in all processes that apply the same ones."""
        # The rules of a policy are shown by its repr, all of them.
        return hashlib.sha256(repr(self._rights.policies).encode()).hexdigest()

    def reading_digest(self, type: TypeName) -> str:
        """Return a digest of what may be read of a type. It is the same in all processes that apply the same rules."""
        # Two rules alike in all but their verbs allow the same.
        found = {(rule.type, rule.partition, rule.namespace, rule.name_prefix) for rule in self._rights.reading(type)}
        return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()

    def reads_everything(self) -> bool:
        """Return True if a single rule allows reading every resource of every type."""
        return self._rights.allows("read", TypeName(ANY, ANY, ANY), ANY, ANY, "") and self.is_current()

    def is_current(self) -> bool:
        """Return True if the token is still valid and still has the same policies.

        Otherwise a stream has to end, and its caller has to start a new one. A stream that went on with other
        permissions would give the caller a state that never existed: without some changes, or with resources from
        before.
        """
        access = self._authorizer._access_of(self)
        if access is not None:
            # The rights are the same after a reload. Remember that, so that they are not compared again.
            self.access = access
        return access is not None

    def expires_in(self) -> float:
        """Return the seconds until the token expires; infinity if it does not expire."""
        expires_at = None if self.token is None else self.token.expires_at
        return math.inf if expires_at is None else expires_at - self._authorizer._clock()

    def concerns(self, type: TypeName) -> bool:
        """Return True if the caller has any permission on the type, in any tenancy."""
        return self._admitted(type, by_rule=self._rights.concern(type))

    def may_ask(self, type: TypeName) -> bool:
        """Return True if the caller has any permission on the type, or everyone with a policy has one."""
        return self._admitted(type, by_rule=self._rights.admit(type))

    def _admitted(self, type: TypeName, *, by_rule: bool) -> bool:
        if by_rule and self.is_current():
            return True
        self.denied = Denial("use", type, "", "", "")
        return False

    def allows(self, verb: Verb, type: TypeName, partition: str, namespace: str, name: str) -> bool:
        """Return True if the caller has this permission now. It neither blocks nor raises.

        The arguments are the same as for ``Rights.allows``.
        """
        if self._rights.allows(verb, type, partition, namespace, name) and self.is_current():
            return True
        self.denied = Denial(verb, type, partition, namespace, name)
        return False

    def allows_any(self, verb: Verb, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        """Return True if the caller now has this permission for any part of the scope."""
        if self._rights.allow_any(verb, type, partition, namespace, name_prefix) and self.is_current():
            return True
        self.denied = Denial(verb, type, partition, namespace, name_prefix, f"lets you {verb} any of it")
        return False

    def missing(self) -> str | None:
        """Return why the last permission was denied and which rule to ask for, or None if the caller may not know that.

        Only callers with some other permission on the type may know it. For a lease, every caller with a policy may
        know it, because every server has leases.
        """
        if self.denied is None or not self.is_current():
            return None
        type = self.denied.type
        if not self._rights.concern(type) and not (type == LEASE and self._rights.policies):
            return None
        hint = f"none of your rules {self.denied.lacking}; ask for one such as {self.denied.rule()}"
        verb, _, partition, namespace, name, _ = self.denied
        if verb != "use" and (rule := self._rights.narrower(verb, type, partition, namespace, name)) is not None:
            hint += f", or ask only for {self.denied.part_of(rule)}"
        return hint

    def check(self, verb: Verb, type: TypeName, partition: str, namespace: str, name: str) -> None:
        """Raise PermissionDenied unless the caller has this permission. The message depends only on the arguments."""
        if not self.allows(verb, type, partition, namespace, name):
            _deny(verb, type, partition, namespace, name)


def _deny(verb: str, type: TypeName, partition: str, namespace: str, name: str) -> NoReturn:
    units = "/".join(unit for unit in (partition, namespace) if unit)
    where = f" in {units}" if units else ""
    raise PermissionDenied(f"permission denied: {verb} {type} {name!r}{where}; ask for a policy that allows it")


def _presented(metadata: Mapping[str, str]) -> str | None:
    """Return the text of the token that a request carries. Consul's clients send an empty one instead of none."""
    text, credentials = _sent(metadata, TOKEN_HEADER), _sent(metadata, AUTHORIZATION_KEY)
    if not credentials:
        return text or None
    scheme, _, bearer = credentials.partition(" ")
    bearer = bearer.strip()
    if scheme.lower() != "bearer":
        if not text:
            raise Unauthenticated(REFUSED)
    elif not text:
        return bearer
    elif text != bearer:
        # A proxy may decide by the other one, and the caller would not know which of them has the rights.
        raise Unauthenticated(TWO_TOKENS)
    return text


def _sent(metadata: Mapping[str, str], key: str) -> str | None:
    """Return the value of a key. Raises Unauthenticated if it has several, even if they are equal: it is ambiguous."""
    # gRPC's metadata has the first method, and that of a request over HTTP the second one.
    several = getattr(metadata, "getall", None) or getattr(metadata, "getlist", None)
    value = metadata.get(key)
    if value is not None and several is not None and len(values := several(key)) > 1:
        raise Unauthenticated(SEVERAL.format(key, len(values)))
    return value
