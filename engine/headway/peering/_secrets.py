"""The secrets of peerings in a store.

They are resources of a kind that no registry has. So every store keeps them, backups and copies include them, and no
caller reaches them through the resource service, whatever its rights: the type is not registered.

The accepting side stores SHA-256 hashes. A secret is 256 random bits, so neither a salt nor a slow hash would add
anything. The dialing side stores the secrets themselves, because it has to send them.

A token's secret is exchanged for the secret of a stream. The new one is pending until a stream is opened with it. Until
then, the dialer whose attempt was the first may exchange the token again, because the answer may have been lost. The
first stream makes the secret active, and the token cannot be exchanged any longer. Its hash is kept, so that whoever
has the token learns that it was used.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from ulid_transform import ulid_now

from headway._gen.headway.peering.v1 import Peering, Secrets
from headway.base import utc_now
from headway.errors import FailedPrecondition, PermissionDenied, Unavailable
from headway.peering._types import PEERING
from headway.protobuf import decode, encode
from headway.resource import AnyMessage, Key, Kind, Resource, pb
from headway.storage import Backend, Put, Remove, StorageError, Within

SECRETS_KIND: Kind = ("internal", "PeeringSecrets")
TOKEN_LIFETIME = datetime.timedelta(hours=1)
"""The time within which a token must be exchanged."""

TERMINATED_FOR = datetime.timedelta(days=30)
"""The time for which a deleted peering is remembered, so that its dialer learns of the deletion."""

REFUSED = "the peering's secret is not valid here: it may be mistyped, expired, replaced or revoked"
"""The message for the bearer of any invalid secret. It is always the same, so that it reveals nothing."""

_UID = re.compile(r"[0-9A-Za-z]{26}\Z")
_URL = "type.googleapis.com/headway.peering.v1.Secrets"
_SECRET_BYTES = 32
_ATTEMPTS = 10
# No secret has these hashes. The first stands for a missing record, so that the work is the same. The second stands for
# the attempt that exchanged a token, when a stream was opened with the secret that it got.
_ABSENT = "sha256:" + "0" * 64
_USED = "sha256:" + "1" * 64


class AdmittedPeer(NamedTuple):
    """The peering that a stream belongs to.

    Attributes:
        name: the name of the Peering in this store.
        uid: its uid. The dialer sends it in the open message.
        peer_id: the uid of the dialing Peering in the other store.
        terminated: True if the Peering was deleted. Send terminated, and end the stream.
    """

    name: str
    uid: str
    peer_id: str
    terminated: bool


def new_secret() -> str:
    """Return a new secret."""
    return secrets.token_hex(_SECRET_BYTES)


def hash_of(secret: str) -> str:
    """Return the stored form of a secret."""
    # A text from the network may contain lone surrogates, which UTF-8 cannot encode.
    return f"sha256:{hashlib.sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _fits(secret_hash: str, stored: str) -> bool:
    return hmac.compare_digest(secret_hash, stored or _ABSENT)


class SecretStore:
    """The secrets of the peerings of one store. Every method reads the store anew, and nothing is cached."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    # --- The accepting side ---------------------------------------------------

    async def put_token(self, peering: Resource[Peering], secret: str) -> datetime.datetime:
        """Store the hash of a new token's secret, in place of an earlier one. Return its expiry.

        The present stream secret stays valid until a stream is opened with a newer one.
        """
        expires_at = utc_now() + TOKEN_LIFETIME

        def change(record: Secrets) -> None:
            record.token_hash, record.token_expires_at = hash_of(secret), expires_at
            record.exchanged_by, record.plain_text = "", peering.data.plain_text

        await self._change(peering.id.uid, change, peering.name)
        return expires_at

    async def exchange(
        self, peer_id: str, secret: str, attempt: str, dialer_id: str, *, plain_text: bool = False
    ) -> tuple[str, str]:
        """Return the name of the accepting Peering, and a new stream secret, for the secret of its token.

        ``plain_text`` says that the request came without TLS.

        Raises:
            PermissionDenied: the secret is not valid.
            FailedPrecondition: another attempt has exchanged the token, the peering is another dialer's, or its token
                may not be exchanged in plain text.
        """
        given, by = hash_of(secret), hash_of(attempt)
        stream_secret = new_secret()

        def change(record: Secrets) -> None:
            expires_at = record.token_expires_at
            holds = expires_at is not None and utc_now() < expires_at and record.terminated_at is None
            if not (_fits(given, record.token_hash) & holds):
                raise PermissionDenied(REFUSED)
            if plain_text and not record.plain_text:
                raise FailedPrecondition(
                    f"the token of peering {record.peering_name} must be exchanged over TLS, also on the way from a "
                    "proxy to the engine; only a token that was made for plain text may be exchanged without it, on "
                    "the same machine"
                )
            if record.exchanged_by and not _fits(by, record.exchanged_by):
                raise FailedPrecondition(
                    f"the token of peering {record.peering_name} was exchanged already: make a new token"
                )
            if record.active_hash and record.dialer_id != dialer_id:
                raise FailedPrecondition(
                    f"peering {record.peering_name} belongs to another dialer: delete it, and make a new one"
                )
            record.exchanged_by, record.pending_hash, record.dialer_id = by, hash_of(stream_secret), dialer_id

        record = await self._change(peer_id, change)
        return record.peering_name, stream_secret

    async def authenticate(self, peer_id: str, secret: str) -> AdmittedPeer:
        """Return the peering that a stream secret belongs to. A pending secret becomes active by this commit.

        Raises:
            PermissionDenied: the secret is not valid.
        """
        given = hash_of(secret)

        def change(record: Secrets) -> None:
            is_active, is_pending = _fits(given, record.active_hash), _fits(given, record.pending_hash)
            if not is_active and not is_pending:
                raise PermissionDenied(REFUSED)
            if is_pending:
                record.active_hash, record.pending_hash = record.pending_hash, ""
                # A token that was made after the exchange of this secret stays valid.
                if record.exchanged_by:
                    record.exchanged_by = _USED

        record = await self._change(peer_id, change)
        peering, _ = await self._backend.read(PEERING.kind, ("", "", record.peering_name))
        there = peering is not None and peering.id is not None and peering.id.uid == record.peering_uid
        terminated = record.terminated_at is not None or not there
        return AdmittedPeer(record.peering_name, record.peering_uid, record.dialer_id, terminated)

    async def terminate(self, uid: str) -> None:
        """Invalidate the token of a deleted peering.

        Its stream secret stays valid, so that its dialer learns of the deletion.
        """

        def change(record: Secrets) -> None:
            record.terminated_at = record.terminated_at or utc_now()
            record.token_hash, record.token_expires_at, record.exchanged_by = "", None, ""

        try:
            await self._change(uid, change)
        except PermissionDenied:
            return
        await self._prune()

    # --- The dialing side -----------------------------------------------------

    async def put_dialing(self, peering: Resource[Peering], token_secret: str) -> Secrets:
        """Store the secret of a token, and a new attempt to exchange it. The same secret keeps its attempt."""

        def change(record: Secrets) -> None:
            if record.token_secret != token_secret:
                record.token_secret, record.attempt = token_secret, new_secret()

        return await self._change(peering.id.uid, change, peering.name)

    async def put_stream_secret(self, uid: str, attempt: str, stream_secret: str) -> None:
        """Store the stream secret that this attempt got, and forget the token. The attempt is kept as a name.

        Raises:
            FailedPrecondition: another token has been given since.
        """

        def change(record: Secrets) -> None:
            if record.attempt != attempt:
                raise FailedPrecondition(f"peering {record.peering_name} was given another token since")
            record.stream_secret, record.token_secret = stream_secret, ""

        await self._change(uid, change)

    async def drop_token(self, uid: str, attempt: str) -> None:
        """Forget a token that was refused, unless another one was given since. The stream secret stays valid."""

        def change(record: Secrets) -> None:
            if record.attempt == attempt:
                record.token_secret = record.attempt = ""

        await self._change(uid, change)

    # --- Both sides -----------------------------------------------------------

    async def read(self, uid: str) -> Secrets | None:
        """Return the secrets of a peering by its uid, or None. Never log them."""
        record, _ = await self._read(uid)
        return record

    async def uids_of(self, name: str) -> list[str]:
        """Return the uids of all peerings of this name that have secrets, the present one and earlier ones."""
        found, _ = await self._backend.list(SECRETS_KIND, Within())
        return [record.peering_uid for record in map(_decoded, found) if record.peering_name == name]

    async def forget(self, uid: str) -> None:
        """Remove the secrets of a peering."""
        _, stored = await self._read(uid)
        if stored is not None:
            await self._remove(stored)

    async def _prune(self) -> None:
        """Remove what was terminated long ago."""
        found, _ = await self._backend.list(SECRETS_KIND, Within())
        for stored in found:
            terminated_at = _decoded(stored).terminated_at
            if terminated_at is not None and utc_now() - terminated_at > TERMINATED_FOR:
                await self._remove(stored)

    async def _remove(self, stored: pb.Resource) -> None:
        assert stored.id is not None
        removal = Remove(SECRETS_KIND, ("", "", stored.id.name), stored.id.uid, stored.version)
        await self._backend.commit((removal,))

    async def _read(self, uid: str) -> tuple[Secrets | None, pb.Resource | None]:
        stored, _ = await self._backend.read(SECRETS_KIND, _key(uid))
        return (None, None) if stored is None else (_decoded(stored), stored)

    async def _change(self, uid: str, change: Callable[[Secrets], None], created_for: str = "") -> Secrets:
        """Change a record by one commit, or create it for a peering of this name. Errors of ``change`` propagate.

        A record that does not exist is changed too, and then refused: the work is the same for every secret.
        """
        for _ in range(_ATTEMPTS):
            record, stored = await self._read(uid)
            if record is None:
                record = Secrets(peering_name=created_for, peering_uid=uid)
            before = b"" if stored is None else encode(record)
            change(record)
            if stored is None and not created_for:
                raise PermissionDenied(REFUSED)
            if stored is not None and encode(record) == before:
                return record
            try:
                await self._backend.commit((_put(uid, record, stored),))
            except StorageError:
                continue
            return record
        raise Unavailable(f"the secrets of a peering were changed by others {_ATTEMPTS} times: try again")


def _decoded(stored: pb.Resource) -> Secrets:
    return decode(Secrets, b"" if stored.data is None else stored.data.value)


def _key(uid: str) -> Key:
    # A uid from the network may be any text. No record has an empty name.
    return ("", "", uid.lower() if _UID.match(uid) else "")


def _put(uid: str, record: Secrets, stored: pb.Resource | None) -> Put:
    type = pb.Type(group=SECRETS_KIND[0], group_version="v1", kind=SECRETS_KIND[1])
    own_uid = ulid_now() if stored is None or stored.id is None else stored.id.uid
    id = pb.Id(uid=own_uid, name=uid.lower(), type=type, tenancy=pb.Tenancy(partition="", namespace=""))
    resource = pb.Resource(id=id, data=AnyMessage(type_url=_URL, value=encode(record)))
    return Put(SECRETS_KIND, _key(uid), resource, "" if stored is None else stored.version)
