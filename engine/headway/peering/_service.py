"""The service of peerings: tokens, establishing, and the exchange of a token's secret for a stream's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from headway._gen.headway.peering import v1 as peering_pb
from headway._gen.headway.peering.v1 import Peering, Role
from headway.api import Api, Call, method
from headway.base import utc_now
from headway.client import until, until_gone
from headway.errors import AlreadyExists, Conflict, FailedPrecondition, InvalidArgument, Unavailable
from headway.peering._dial import EXCHANGE_TIMEOUT
from headway.peering._exchange import exchange_secret, refusing
from headway.peering._host import PeeringHost
from headway.peering._lifecycle import DONE, FAILED, REFUSED, attempt_name
from headway.peering._partition import check_free, ensure_partition
from headway.peering._secrets import new_secret
from headway.peering._token import PeeringToken, read_token
from headway.peering._types import EXCHANGED, PEERING, STATUS_KEY, condition_of
from headway.peering._write_rules import (
    check_exports,
    check_kept_exports,
    check_peering_name,
    check_redirected,
    check_way,
)
from headway.protobuf import copy_message
from headway.resource import Condition, Resource
from headway.rpc import address
from headway.service import (
    AccessChecks,
    Permissions,
    check_text,
)

SERVICE = "headway.peering.v1.PeeringService"
_ATTEMPTS = 8
_EVERYWHERE = ("0.0.0.0", "::")

T = TypeVar("T")


class PeeringService(Api, service="headway.peering.v1.PeeringService"):
    """The peerings of an engine.

    Making a token and establishing need the right to write the Peering, and to read everything that it exports. An
    exchange needs nothing but the secret.

    Args:
        permissions: what the caller may do; without them, every caller may do everything.
    """

    def __init__(self, host: PeeringHost, permissions: Permissions | None = None) -> None:
        self._host = host
        self._access = AccessChecks(permissions, host.registry)

    @method("ExchangeSecret", peering_pb.ExchangeSecretRequest, peering_pb.ExchangeSecretResponse, effect=True)
    async def exchange_secret(
        self, call: Call, request: peering_pb.ExchangeSecretRequest
    ) -> peering_pb.ExchangeSecretResponse:
        """Check the secret of a token, and return the secret of a stream."""
        return await exchange_secret(self._host, call, request)

    # --- Tokens ---------------------------------------------------------------

    @method("GenerateToken", peering_pb.GenerateTokenRequest, peering_pb.GenerateTokenResponse, effect=True)
    async def generate_token(
        self, _call: Call, request: peering_pb.GenerateTokenRequest
    ) -> peering_pb.GenerateTokenResponse:
        """Create or update an accepting peering, and return a token for its dialer."""
        host, name = self._host, request.name
        self._admit(name, request.exports)
        check_way(request.addresses, request.server_name, request.ca, "", plain_text=request.plain_text)
        addresses = list(request.addresses) or _advertised(host, plain_text=request.plain_text)
        with refusing():
            stored, _ = await self._found(name, Peering(role=Role.ACCEPTS))
            _check_role(stored, Role.ACCEPTS, "`headway peer token`")

            def update(data: Peering) -> None:
                earlier: Peering = copy_message(data)
                if request.keep_exports:
                    check_kept_exports(self._access, data.exports)
                else:
                    data.exports = [copy_message(each) for each in request.exports]
                data.addresses, data.plain_text = addresses, request.plain_text
                data.server_name, data.ca = request.server_name, request.ca
                check_redirected(self._access, name, earlier, data)

            peering = await self._changed(stored, update)
            await ensure_partition(host.backend, host.client, peering)
            secret = new_secret()
            expires_at = await host.secrets.put_token(peering, secret)
        token = PeeringToken(
            peer_id=peering.id.uid,
            peer_name=name,
            store_id=host.backend.position.store_id,
            addresses=tuple(addresses),
            server_name=request.server_name,
            ca=request.ca,
            plain_text=request.plain_text,
            secret=secret,
            expires_at=expires_at,
        )
        return peering_pb.GenerateTokenResponse(token=token.text(), peering=peering.message(), expires_at=expires_at)

    def _admit(self, name: str, exports: list[peering_pb.Export]) -> None:
        """Check a peering's name, the caller's rights to it, and the exports."""
        check_peering_name(name)
        self._access.check_write(PEERING.id(name).message(), None)
        check_exports(self._access, exports, "exports")

    async def _found(self, name: str, data: Peering) -> tuple[Resource[Peering], bool]:
        """Return the peering of this name, and True if it was created, with this data."""
        client = self._host.client
        stored = await client.get(PEERING, name)
        if stored is not None:
            return stored, False
        try:
            await check_free(self._host.backend, name)
            return await client.create(PEERING.new(name, data)), True
        except (AlreadyExists, FailedPrecondition):
            # Another caller may have created it, and its partition, since the look.
            stored = await client.get(PEERING, name)
            if stored is None:
                raise
            return stored, False

    async def _changed(self, peering: Resource[Peering], update: Callable[[Peering], None]) -> Resource[Peering]:
        """Return the peering with its data updated and stored, even if others change it."""
        for _ in range(_ATTEMPTS):
            update(peering.data)
            try:
                return await self._host.client.write(peering)
            except Conflict:
                uid = peering.id.uid
                peering = await self._host.client.read(PEERING, peering.id)
                if peering.is_deleting or peering.id.uid != uid:
                    break
        raise Conflict(f"peering {peering.name} kept being changed by others, or was deleted: try again")

    # --- Establishing ---------------------------------------------------------

    @method("Establish", peering_pb.EstablishRequest, peering_pb.EstablishResponse, effect=True)
    async def establish(self, _call: Call, request: peering_pb.EstablishRequest) -> peering_pb.EstablishResponse:
        """Create a dialing peering from a token, and wait until its secret is exchanged."""
        host, name = self._host, request.name
        self._admit(name, request.exports)
        with refusing():
            token = read_token(request.token)
        self._check_token(token, plain_text=request.plain_text)
        with refusing():
            data = Peering(role=Role.DIALS)
            _take(data, token, request.exports)
            stored, created = await self._found(name, data)
            _check_role(stored, Role.DIALS, "`headway peer establish`")
            if stored.data.peer_id != token.peer_id:
                raise FailedPrecondition(
                    f"peering {name} has another peer than the token names ({stored.data.peer_name} there): "
                    "delete it first, or choose another name"
                )
            before: Peering = copy_message(stored.data)

            def take(data: Peering) -> None:
                earlier: Peering = copy_message(data)
                _take(data, token, request.exports)
                if not created:
                    check_redirected(self._access, name, earlier, data)
                    check_kept_exports(self._access, data.exports)

            # The controller may look at any moment. It must not send the secret to the addresses of an earlier token.
            stored = await self._changed(stored, take)
            record = await host.secrets.put_dialing(stored, token.secret)
            # This makes the controller look at the secret.
            peering = await self._changed(stored, take)
            peering, outcome = await self._exchanged(peering, attempt_name(record.attempt))
            if outcome is not None and outcome.reason == REFUSED:
                await self._undo(peering, None if created else before, record.attempt)
        if outcome is None or outcome.reason == FAILED:
            why = "no answer yet" if outcome is None else outcome.message
            raise Unavailable(
                f"peering {name} is not established yet: {why}; the engine tries again until the token expires "
                f"(`headway peer list`); `headway peer delete {name}` gives up",
            )
        if outcome.reason != DONE:
            raise FailedPrecondition(f"peering {name} was not established: {outcome.message}")
        return peering_pb.EstablishResponse(peering=peering.message())

    async def _undo(self, peering: Resource[Peering], before: Peering | None, attempt: str) -> None:
        """Undo the changes to a peering after its token was refused: restore its data, or delete a new peering."""
        client = self._host.client
        if before is None:
            await client.delete(peering)
            with trio.move_on_after(EXCHANGE_TIMEOUT):
                await until_gone(client, PEERING, peering.id)
            return

        def restore(data: Peering) -> None:
            data.exports, data.addresses, data.plain_text = before.exports, before.addresses, before.plain_text
            data.server_name, data.ca, data.peer_name = before.server_name, before.ca, before.peer_name

        await self._host.secrets.drop_token(peering.id.uid, attempt)
        await self._changed(peering, restore)

    def _check_token(self, token: PeeringToken, *, plain_text: bool) -> None:
        check_way(list(token.addresses), token.server_name, token.ca, "the token's ", plain_text=token.plain_text)
        for field in ("peer_id", "peer_name", "store_id", "secret"):
            check_text(f"the token's {field}", "" if field == "secret" else getattr(token, field))
        if len(token.secret) > 255:
            raise InvalidArgument(f"the token's secret has {len(token.secret)} characters: it must have at most 255")
        if token.plain_text and not plain_text:
            raise FailedPrecondition(
                "the token says to connect without TLS: allow it by plain_text (--plain-text), or make a token for TLS"
            )
        if utc_now() >= token.expires_at:
            raise FailedPrecondition(f"the token expired at {token.expires_at:%Y-%m-%d %H:%M:%S %Z}: make a new one")
        if token.store_id == self._host.backend.position.store_id:
            raise FailedPrecondition("the token was made by this store: a store cannot be its own peer")

    async def _exchanged(self, peering: Resource[Peering], attempt: str) -> tuple[Resource[Peering], Condition | None]:
        """Wait until the controller has tried this attempt. Return the peering, and the outcome if there is one."""
        found: Condition | None = None

        def tried(current: Resource[Peering] | None) -> bool:
            nonlocal found
            if current is None or current.id.uid != peering.id.uid or current.is_deleting:
                return True
            condition = condition_of(current, STATUS_KEY, EXCHANGED)
            found = condition if condition is not None and f"attempt {attempt}" in condition.message else None
            return found is not None

        current: Resource[Peering] | None = peering
        with trio.move_on_after(EXCHANGE_TIMEOUT + 5):
            current = await until(self._host.client, PEERING, peering.id.without_uid(), tried)
        if current is None or current.id.uid != peering.id.uid:
            raise Conflict(f"peering {peering.name} was deleted")
        return current, found


def _take(data: Peering, token: PeeringToken, exports: list[peering_pb.Export]) -> None:
    # Without exports, an existing peering keeps its own.
    data.exports = [copy_message(each) for each in exports] or data.exports
    data.addresses, data.server_name, data.ca = list(token.addresses), token.server_name, token.ca
    data.plain_text, data.peer_id, data.peer_name = token.plain_text, token.peer_id, token.peer_name


def _check_role(peering: Resource[Peering], role: Role, command: str) -> None:
    if peering.is_deleting:
        raise FailedPrecondition(f"peering {peering.name} is being deleted: wait until it is gone")
    if peering.data.role is not role:
        made = "accepts" if peering.data.role is Role.ACCEPTS else "dials"
        raise AlreadyExists(f"peering {peering.name} exists and {made}: {command} needs another name, or delete it")


def _advertised(host: PeeringHost, *, plain_text: bool) -> list[str]:
    """Return the engine's listening addresses that other hosts can use."""
    named = [each for each in host.addresses if address(each).host not in _EVERYWHERE]
    if not named:
        raise InvalidArgument(
            "addresses is required: this engine listens at no address that names its host; give "
            "addresses that the other side can reach, such as 'engine.example.com:9000'"
        )
    if not host.encrypted and not plain_text:
        raise FailedPrecondition(
            "the engine listens without TLS: open it with tls=headway.rpc.server_tls(...), or allow plain_text between "
            "processes of one machine"
        )
    check_way(named, "", "", "", plain_text=plain_text)
    return named
