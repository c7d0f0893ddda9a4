"""The task that keeps the keys of issuers: it reads them when they are due, and drops them when they are stale."""

from __future__ import annotations

from typing import NoReturn

import trio

from headway.access._authorizer import Authorizer
from headway.access._content import first_names
from headway.access._jwks import Keys
from headway.access._key_ring import KeyRing
from headway.access._key_sources import KeysUnavailable, KeysWithdrawn, keys_of
from headway.base import safe_report, story
from headway.events import IssuerFailed, IssuerKeysChanged, IssuerKeysRead, Report


async def keep_keys(
    authorizer: Authorizer, report: Report, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> NoReturn:
    """Keep the keys of all issuers of an authorizer, until canceled. An engine with `Network.access` does this itself.

    The keys of each issuer are read at the beginning, then every ``refresh_interval``, and earlier, but at most every
    10 seconds, if a token names a key that is not known. If they cannot be read, the known ones are used for
    ``stale_limit`` seconds.
    """
    keeper = _Keeper(authorizer, safe_report(report))
    authorizer.logins.keepers += 1
    task_status.started()
    try:
        while True:
            changed = authorizer.logins.replaced
            async with trio.open_nursery() as nursery:
                for ring in authorizer.logins.rings.values():
                    nursery.start_soon(keeper.keep, ring, name=f"keys of {ring.issuer.name}")
                await changed.wait()
                nursery.cancel_scope.cancel()
    finally:
        authorizer.logins.keepers -= 1


class _Keeper:
    def __init__(self, authorizer: Authorizer, report: Report) -> None:
        self._authorizer = authorizer
        self._report = report

    async def keep(self, ring: KeyRing) -> NoReturn:
        """Keep the keys of one issuer."""
        logins = self._authorizer.logins
        while True:
            wanted = logins.wanted
            now = trio.current_time()
            if ring.drop_if_stale(now):
                self._report(IssuerKeysChanged(ring.issuer.name, (), "all of them are stale", self._apply()))
            if ring.reading:
                # Another engine with the same authorizer reads them.
                await logins.read.wait()
            elif ring.due() <= now:
                await self._read(ring)
            else:
                with trio.move_on_at(min(ring.due(), now + (ring.fresh_for(now) or ring.pause))):
                    await wanted.wait()

    async def _read(self, ring: KeyRing) -> None:
        logins = self._authorizer.logins
        ring.begin(trio.current_time())
        try:
            keys = await keys_of(ring.issuer)
        except KeysUnavailable as error:
            withdrawn = isinstance(error, KeysWithdrawn) and ring.drop()
            self._failed(ring, str(error))
            if withdrawn:
                self._report(IssuerKeysChanged(ring.issuer.name, (), "all of them are withdrawn", self._apply()))
        except Exception as error:  # noqa: BLE001  # no answer of an issuer may end a running server
            self._failed(ring, story(error)[:500])
        else:
            self._loaded(ring, keys)
        finally:
            if ring.reading:
                ring.canceled()
            logins.was_read()

    def _failed(self, ring: KeyRing, why: str) -> None:
        now = trio.current_time()
        ring.failed(now)
        self._report(IssuerFailed(ring.issuer.name, why, len(ring.keys), ring.fresh_for(now)))

    def _loaded(self, ring: KeyRing, keys: Keys) -> None:
        name, changed = ring.issuer.name, not ring.keys.are(keys)
        ring.loaded(keys, trio.current_time())
        self._report(IssuerKeysRead(name, len(keys)))
        if changed:
            left_out = "; ".join(keys.left_out)[:500]
            self._report(IssuerKeysChanged(name, first_names(keys.names), left_out, self._apply()))

    def _apply(self) -> int:
        """Check everything against the keys as they are now. Return the number of streams that have ended."""
        self._authorizer.logins.forget()
        return self._authorizer.end_outdated()
