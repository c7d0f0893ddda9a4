"""The secrets in a store: exchanges and their repetition, the first use of a stream's secret, deletion."""

from __future__ import annotations

import datetime

import pytest

from headway.errors import FailedPrecondition, PermissionDenied
from headway.peering import PEERING, SECRETS_KIND, Peering, Role, SecretStore
from headway.peering._secrets import REFUSED, TERMINATED_FOR, hash_of
from headway.resource import Resource
from headway.storage import MemoryBackend, Put, Within

UID = "01J00000000000000000000000"
OTHER = "01J00000000000000000000009"
NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def peering(uid: str = UID, *, plain_text: bool = False) -> Resource[Peering]:
    message = PEERING.new("west", Peering(role=Role.ACCEPTS, plain_text=plain_text)).message()
    assert message.id is not None
    message.id.uid = uid
    return Resource(PEERING, message)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime.datetime]:
    """Return a list with the current time, which a test may change."""
    now = [NOW]
    monkeypatch.setattr("headway.peering._secrets.utc_now", lambda: now[0])
    return now


@pytest.fixture
async def backend() -> MemoryBackend:
    """Return a store with the Peering whose secrets are tested."""
    store = MemoryBackend()
    await store.commit([Put(PEERING.kind, ("", "", "west"), peering().message(), "")])
    return store


@pytest.fixture
async def secrets(backend: MemoryBackend, clock: list[datetime.datetime]) -> SecretStore:  # noqa: ARG001  # by it
    """Return secrets with a token, whose secret is ``one``."""
    store = SecretStore(backend)
    assert await store.put_token(peering(), "one") == NOW + datetime.timedelta(hours=1)
    return store


async def test_r9_secret_of_a_token_is_exchanged_for_one_attempt_alone(secrets: SecretStore) -> None:
    name, first = await secrets.exchange(UID, "one", "mine", "dialer")
    assert name == "west"
    with pytest.raises(FailedPrecondition, match="exchanged already"):
        await secrets.exchange(UID, "one", "theirs", "dialer")
    assert (await secrets.authenticate(UID, first)).name == "west"


async def test_repeated_exchange_gives_a_new_pending_secret(secrets: SecretStore) -> None:
    """The first answer may have been lost. Only the latest secret is valid, and its first use ends the token."""
    _, first = await secrets.exchange(UID, "one", "mine", "dialer")
    _, second = await secrets.exchange(UID, "one", "mine", "dialer")
    assert first != second
    with pytest.raises(PermissionDenied, match=REFUSED):
        await secrets.authenticate(UID, first)
    assert not (await secrets.authenticate(UID, second)).terminated
    with pytest.raises(FailedPrecondition, match="exchanged already: make a new token"):
        await secrets.exchange(UID, "one", "mine", "dialer")


async def test_r3_first_use_makes_a_pending_secret_active(secrets: SecretStore, backend: MemoryBackend) -> None:
    """It stays active. Further uses write nothing."""
    _, secret = await secrets.exchange(UID, "one", "mine", "dialer")
    assert await secrets.authenticate(UID, secret) == ("west", UID, "dialer", False)
    record = await secrets.read(UID)
    assert record is not None
    assert (record.active_hash, record.pending_hash) == (hash_of(secret), "")
    revision = backend.position.revision
    assert await secrets.authenticate(UID, secret) == ("west", UID, "dialer", False)
    assert backend.position.revision == revision


async def test_r3_active_secret_stays_valid_until_a_newer_one_is_used(secrets: SecretStore) -> None:
    _, old = await secrets.exchange(UID, "one", "mine", "dialer")
    await secrets.authenticate(UID, old)
    await secrets.put_token(peering(), "two")
    _, new = await secrets.exchange(UID, "two", "again", "dialer")
    await secrets.authenticate(UID, old)
    await secrets.authenticate(UID, new)
    with pytest.raises(PermissionDenied, match=REFUSED):
        await secrets.authenticate(UID, old)


async def test_r3_first_use_of_a_secret_keeps_a_token_that_was_made_after_its_exchange(secrets: SecretStore) -> None:
    """A dialer that was slow to use its secret would otherwise void the token that is to replace it."""
    _, slow = await secrets.exchange(UID, "one", "mine", "dialer")
    await secrets.put_token(peering(), "two")
    await secrets.authenticate(UID, slow)
    _, new = await secrets.exchange(UID, "two", "again", "dialer")
    assert not (await secrets.authenticate(UID, new)).terminated


async def test_another_dialer_cannot_take_over_a_peering(secrets: SecretStore) -> None:
    """The copies of two stores would mix."""
    _, secret = await secrets.exchange(UID, "one", "mine", "dialer")
    await secrets.authenticate(UID, secret)
    await secrets.put_token(peering(), "two")
    with pytest.raises(FailedPrecondition, match="belongs to another dialer: delete it"):
        await secrets.exchange(UID, "two", "theirs", "another")


@pytest.mark.parametrize(
    ("peer_id", "secret"),
    [(UID, "two"), (UID, ""), (UID, "\ud800"), (OTHER, "one"), ("", "one"), ("x" * 10_000, "one"), (UID[:-1], "one")],
)
async def test_r3_wrong_secret_is_refused_in_the_same_words(secrets: SecretStore, peer_id: str, secret: str) -> None:
    """The words do not show whether the peering exists, and nothing is stored."""
    with pytest.raises(PermissionDenied) as caught:
        await secrets.exchange(peer_id, secret, "mine", "dialer")
    assert str(caught.value) == REFUSED
    with pytest.raises(PermissionDenied) as caught:
        await secrets.authenticate(peer_id, secret)
    assert str(caught.value) == REFUSED
    assert await secrets.read(OTHER) is None
    record = await secrets.read(UID)
    assert record is not None
    assert not record.exchanged_by


async def test_token_expires_an_hour_after_it_was_made(secrets: SecretStore, clock: list[datetime.datetime]) -> None:
    clock[0] = NOW + datetime.timedelta(minutes=59, seconds=59)
    await secrets.exchange(UID, "one", "mine", "dialer")
    clock[0] = NOW + datetime.timedelta(hours=1)
    with pytest.raises(PermissionDenied, match=REFUSED):
        await secrets.exchange(UID, "one", "mine", "dialer")


async def test_plain_text_needs_a_token_made_for_it(secrets: SecretStore) -> None:
    with pytest.raises(FailedPrecondition, match="must be exchanged over TLS"):
        await secrets.exchange(UID, "one", "mine", "dialer", plain_text=True)
    await secrets.put_token(peering(plain_text=True), "two")
    await secrets.exchange(UID, "two", "mine", "dialer", plain_text=True)


async def test_accepting_side_stores_hashes_alone(secrets: SecretStore, backend: MemoryBackend) -> None:
    _, secret = await secrets.exchange(UID, "one", "an-attempt", "dialer")
    found, _ = await backend.list(SECRETS_KIND, Within())
    held = b"".join(each.data.value for each in found if each.data is not None)
    for text in (secret, "an-attempt"):
        assert text.encode() not in held
        assert hash_of(text).encode() in held


async def test_r4_dialer_of_a_deleted_peering_can_be_told_for_a_month(
    secrets: SecretStore, clock: list[datetime.datetime]
) -> None:
    """Its token ends at once. An old termination is forgotten when another peering is deleted."""
    _, secret = await secrets.exchange(UID, "one", "mine", "dialer")
    await secrets.authenticate(UID, secret)
    await secrets.terminate(UID)
    assert (await secrets.authenticate(UID, secret)).terminated
    clock[0] += TERMINATED_FOR
    await secrets.put_token(peering(OTHER), "two")
    await secrets.terminate(OTHER)
    assert (await secrets.authenticate(UID, secret)).terminated
    clock[0] += datetime.timedelta(seconds=1)
    await secrets.terminate(OTHER)
    with pytest.raises(PermissionDenied, match=REFUSED):
        await secrets.authenticate(UID, secret)


async def test_r4_peering_that_was_removed_by_force_counts_as_terminated(backend: MemoryBackend) -> None:
    store = SecretStore(backend)
    await store.put_token(peering(OTHER), "two")
    _, secret = await store.exchange(OTHER, "two", "mine", "dialer")
    assert (await store.authenticate(OTHER, secret)).terminated


async def test_dialing_side_keeps_its_attempt_until_another_token_is_given(secrets: SecretStore) -> None:
    """An exchange after a crash repeats the same attempt. An answer to an earlier token is not stored."""
    first = await secrets.put_dialing(peering(OTHER), "token")
    again = await secrets.put_dialing(peering(OTHER), "token")
    assert first.attempt == again.attempt
    assert len(first.attempt) == 64
    other = await secrets.put_dialing(peering(OTHER), "another")
    assert other.attempt != first.attempt
    with pytest.raises(FailedPrecondition, match="another token since"):
        await secrets.put_stream_secret(OTHER, first.attempt, "lost")
    await secrets.put_stream_secret(OTHER, other.attempt, "stream")
    record = await secrets.read(OTHER)
    assert record is not None
    assert (record.token_secret, record.stream_secret) == ("", "stream")
    await secrets.forget(OTHER)
    assert await secrets.read(OTHER) is None
    await secrets.forget(OTHER)


async def test_concurrent_exchanges_give_one_dialer_the_secret(backend: MemoryBackend) -> None:
    """A commit that conflicts is decided again from what is stored."""

    class Late(SecretStore):
        """Secrets that another request changes between a read and the commit after it."""

        other: SecretStore

        async def _read(self, uid: str):  # type: ignore[no-untyped-def]  # as the method of the base class
            found = await super()._read(uid)
            if self.other is not None:
                other, self.other = self.other, None  # type: ignore[assignment]
                await other.exchange(UID, "one", "theirs", "another")
            return found

    late = Late(backend)
    late.other = None  # type: ignore[assignment]
    await late.put_token(peering(), "one")
    late.other = SecretStore(backend)
    with pytest.raises(FailedPrecondition, match="exchanged already"):
        await late.exchange(UID, "one", "mine", "dialer")
