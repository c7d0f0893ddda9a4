"""The token of a login for the calls of a command, renewed before it expires, by one process at a time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from headway.base import block_nursery, say
from headway.errors import HeadwayError, Unauthenticated, Unavailable
from headway.login._kept import KeptLogin, Place

if TYPE_CHECKING:
    from headway.rpc import Token

# The clock may be set, and the machine may sleep, so long waits are taken in parts.
_LONGEST_WAIT = 30.0
_RETRY = 5.0


class RenewedToken:
    """The token of a kept login. Calling it returns the token, and does not block."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.login = place.read()

    def __repr__(self) -> str:
        return f"<token of {self.login.issuer} for {self.login.server}>"

    def __call__(self) -> str:
        """Return the token."""
        return self.login.id_token

    async def renew_if_due(self) -> None:
        """Renew the token if it expires soon.

        Raises:
            Unauthenticated: the issuer does not renew it.
            Unavailable: the issuer does not answer, and the token has expired.
        """
        if time.time() < self.login.due_at:
            return
        try:
            self.login = await _renewed(self._place)
        except Unavailable:
            if time.time() >= self.login.expires_at:
                raise

    async def keep(self) -> None:
        """Renew the token whenever it is due. Print a warning and return when the issuer refuses."""
        while True:
            left = self.login.due_at - time.time()
            await trio.sleep(min(left, _LONGEST_WAIT) if left > 0 else _RETRY)
            try:
                await self.renew_if_due()
            except Unavailable:
                continue
            except HeadwayError as error:
                say(f"Warning: {error}\n")
                return


@asynccontextmanager
async def kept_fresh(token: Token) -> AsyncIterator[None]:
    """Renew a token while the block runs, if it is one of a kept login. Raises the errors of `renew_if_due`."""
    if not isinstance(token, RenewedToken):
        yield
        return
    await token.renew_if_due()
    async with block_nursery() as nursery:
        nursery.start_soon(token.keep)
        yield
        nursery.cancel_scope.cancel()


async def _renewed(place: Place) -> KeptLogin:
    """Renew a login, or return what another process has made of it meanwhile."""
    # Imported here, because most commands renew nothing.
    from headway.login._provider import discovered, open_asker
    from headway.login._tokens import Request, checked, text_of

    async with place.locked():
        login = place.read()
        if time.time() < login.due_at:
            return login
        again = f"log in again: headway --server {login.server} login {login.issuer}"
        if not login.refresh_token:
            if time.time() < login.expires_at:
                return login
            raise Unauthenticated(f"the login has expired, and its issuer gave nothing to renew it: {again}")
        asked = Request(login.server, login.client, authority=login.authority)
        async with open_asker(login.authority) as asker:
            provider = await discovered(asker, login.issuer)
            form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "client_id": login.client}
            # Each step is bounded. Between the answer and the file, a Ctrl-C would lose the only valid refresh token.
            with trio.CancelScope(shield=True):
                # A refresh token is spent only if its successor can be kept.
                place.write(login)
                status, answer = await asker.post(provider.token, form)
                if status != 200 or "error" in answer:
                    raise Unauthenticated(f"{login.issuer} does not renew the login: {again}")
                login = replace(login, refresh_token=text_of(answer, "refresh_token") or login.refresh_token)
                place.write(login)
                if not answer.get("id_token"):
                    raise Unauthenticated(f"{login.issuer} renews no ID token: {again}")
                new = await checked(asker, provider, asked, answer, subject=login.subject)
                new = replace(new, refresh_token=login.refresh_token)
                place.write(new)
        return new
