"""The logins of an authorizer: finding the one of a presented JWT, with the keys of its issuers. It does not block.

A verified login is kept until it ends, by the digest of its text, so that a caller's next request costs a hash.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping

import trio

from headway.access._issuers import Issuer
from headway.access._jwks import Keys
from headway.access._jwt_text import JwtRefused, Presented, parsed, shown
from headway.access._key_ring import KeyRing
from headway.access._login import Login, verified

MOST_KEPT = 1_024
"""The number of verified logins that are kept. A further one replaces the one that was not used for longest."""
_MOST_WAITING = 1_000
_PATIENCE = 5.0


class Logins:
    """The issuers of an authorizer, with their keys.

    Attributes:
        rings: the keys by the names of the issuers.
        keepers: the number of tasks that keep the keys (`keep_keys`).
        replaced: set when the issuers are replaced.
        waiting: the number of requests that wait for a reading.
        wanted: set when a token asks for keys that are not known.
        read: set when the reading of an issuer's keys has ended, or the issuers are replaced.
    """

    def __init__(self, issuers: Mapping[str, Issuer], keys: Mapping[str, Keys]) -> None:
        self.rings: dict[str, KeyRing] = {}
        self.keepers = 0
        self.replaced, self.wanted, self.read = trio.Event(), trio.Event(), trio.Event()
        self._by_issuer: dict[str, KeyRing] = {}
        self._kept: OrderedDict[bytes, Login] = OrderedDict()
        # The refusal of the last token, for the report that follows it.
        self._refused: tuple[bytes, JwtRefused] | None = None
        self.waiting = 0
        self.replace(issuers, keys)

    def replace(self, issuers: Mapping[str, Issuer], keys: Mapping[str, Keys]) -> None:
        """Use other issuers. One whose keys come from the same place keeps those that are known."""
        rings: dict[str, KeyRing] = {}
        for name, issuer in issuers.items():
            ring = self.rings.get(name)
            # Keys that come with the issuers were read just now: neither the failures nor the age of others count.
            if ring is None or name in keys or not ring.issuer.has_same_keys(issuer):
                ring = KeyRing(issuer, keys.get(name))
            ring.issuer = issuer
            rings[name] = ring
        self.rings = rings
        self._by_issuer = {ring.issuer.issuer: ring for ring in rings.values()}
        self.forget()
        self.replaced.set()
        self.replaced = trio.Event()
        self.was_read()

    def forget(self) -> None:
        """Forget the logins that were verified, because issuers or keys have changed."""
        self._kept.clear()
        self._refused = None

    def was_read(self) -> None:
        """Wake the requests and keepers that wait for keys."""
        self.read.set()
        self.read = trio.Event()

    def find(self, text: str, now: float) -> Login:
        """Return the login of a JWT at a time in seconds since the epoch. Raises JwtRefused."""
        digest = _digest(text)
        login = self._kept.get(digest)
        if login is not None and login.holds(now):
            self._kept.move_to_end(digest)
            return login
        self._kept.pop(digest, None)
        try:
            presented = parsed(text)
            ring = self._ring(presented)
            login = self._verified(presented, ring, now)
        except JwtRefused as refused:
            # A copy, because the traceback of the one that is raised would keep the text of the token.
            self._refused = digest, JwtRefused(refused.reason, refused.why, refused.issuer, refused.caller)
            raise
        self._kept[digest] = login
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return login

    def refusal(self, text: str, now: float) -> JwtRefused:
        """Return why a JWT is refused at this time."""
        if self._refused is not None and self._refused[0] == _digest(text):
            return self._refused[1]
        try:
            self.find(text, now)
        except JwtRefused as refused:
            return refused
        return JwtRefused("expired", "it was refused, and is accepted now")

    def has_key_of(self, login: Login) -> bool:
        """Return True if the issuer of a login still has the key that signed it, for the algorithm that it used."""
        ring = self.rings.get(login.issuer)
        return ring is not None and ring.keys.can_verify(login.key, login.alg)

    def admits(self, login: Login) -> bool:
        """Return True if a login is still accepted with the same policies, after the issuers were replaced."""
        ring = self.rings.get(login.issuer)
        if ring is None:
            return False
        issuer, claims = ring.issuer, login.claims
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        return (
            issuer.issuer == claims["iss"]
            and not set(audiences).isdisjoint(issuer.audiences)
            and issuer.policies_of(claims) == login.policies
            and login.alg in issuer.algorithms
            and claims["exp"] + issuer.leeway == login.expires_at
        )

    async def wait_for_key(self, text: str) -> None:
        """Wait for the reading of an issuer's keys, if it is due because a token names a key that is not known.

        It takes at most 5 seconds. If it is too early for another reading, it returns at once.
        """
        if _digest(text) in self._kept or not self.keepers or self.waiting >= _MOST_WAITING:
            return
        try:
            presented = parsed(text)
            ring = self._ring(presented)
        except JwtRefused:
            return
        if len(ring.keys) and (presented.kid is None or ring.keys.has(presented.kid)):
            # Another reading would not help.
            return
        self._want(ring)
        if not ring.reading and ring.due() > trio.current_time():
            return
        self.waiting += 1
        try:
            # By the beginning of the reading, because one request may come here more than once.
            began = ring.tried_at if ring.reading else trio.current_time()
            with trio.move_on_at(began + _PATIENCE):
                while self._by_issuer.get(ring.issuer.issuer) is ring and (
                    ring.reading or ring.due() <= trio.current_time()
                ):
                    await self.read.wait()
        finally:
            self.waiting -= 1

    def _ring(self, presented: Presented) -> KeyRing:
        """Return the keys of the issuer that a token names, if it may use this algorithm."""
        iss = presented.claims.get("iss")
        ring = self._by_issuer.get(iss) if isinstance(iss, str) else None
        if ring is None:
            raise JwtRefused("issuer", f"its issuer {shown(iss)} is not in the access file")
        if presented.alg not in ring.issuer.algorithms:
            allowed = ", ".join(ring.issuer.algorithms)
            why = f"its alg {shown(presented.alg)} is not one of the issuer's algorithms ({allowed})"
            raise JwtRefused("algorithm", why, ring.issuer.name)
        return ring

    def _verified(self, presented: Presented, ring: KeyRing, now: float) -> Login:
        name = ring.issuer.name
        key = ring.find(presented.kid, presented.alg)
        if key is not None:
            try:
                return verified(presented, ring.issuer, key, now)
            except JwtRefused as refused:
                if refused.reason == "signature" and presented.kid is None:
                    # Without kids, only this shows that the issuer has another key now.
                    self._want(ring)
                raise
        if not len(ring.keys):
            # They will be read in any case, as soon as they may be.
            raise JwtRefused("no_keys", "the keys of its issuer are not known", name)
        if presented.kid is None:
            why = f"it names no kid, and its issuer does not have exactly one key for {presented.alg}"
            raise JwtRefused("unknown_key", why, name)
        if ring.keys.has(presented.kid):
            why = f"key {shown(presented.kid)} of its issuer is not, or not alone, for {presented.alg}"
            raise JwtRefused("algorithm", why, name)
        self._want(ring)
        raise JwtRefused("unknown_key", f"its issuer has no key {shown(presented.kid)}", name)

    def _want(self, ring: KeyRing) -> None:
        before = ring.due()
        ring.want()
        if ring.due() < before:
            self.wanted.set()
            self.wanted = trio.Event()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
