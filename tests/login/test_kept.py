"""Logins that are kept: the file, the keyring, and their renewal by one process at a time."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
import types
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from headway.cli._exits import Usage
from headway.cli._target import kept_token
from headway.errors import InvalidArgument, Unauthenticated, Unavailable
from headway.login import KeptLogin, KeptLogins, Place, RenewedToken, kept_fresh
from tests.helpers.oidc_provider import OidcProvider, serving_provider

SERVER = "127.0.0.1:7070"


@pytest.fixture
async def provider() -> AsyncIterator[OidcProvider]:
    async with serving_provider() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return KeptLogins().of(SERVER)


def login(provider: OidcProvider | None = None, *, left: float = 3600, **changes: Any) -> KeptLogin:
    """Return a login whose token expires in some seconds."""
    now = time.time()
    tokens = {} if provider is None else json.loads(provider.tokens()[2])
    made = KeptLogin(
        server=SERVER,
        issuer="https://login.example.com" if provider is None else provider.url,
        client="headway",
        authority="",
        subject="ada",
        groups=("ops",),
        obtained_at=now - 3600,
        expires_at=now + left,
        id_token=tokens.get("id_token", "a.secret.token"),
        refresh_token=tokens.get("refresh_token", "a-refresh-token"),
    )
    return replace(made, **changes)


def test_kept_login_is_read_again(place: Place) -> None:
    """Its file and its folder are this user's alone, whatever the umask."""
    before = os.umask(0)
    try:
        place.write(login())
    finally:
        os.umask(before)

    assert place.read().id_token == "a.secret.token"
    assert (place.path.stat().st_mode & 0o777, place.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [each.name for each in place.path.parent.iterdir()] == [place.path.name]


def test_login_is_for_one_server(place: Place) -> None:
    """The order of its addresses does not matter. No other server gets the token."""
    place.write(login())
    kept = KeptLogins()

    assert not kept.of("127.0.0.1:7071").exists()
    assert kept.of("a:1, b:1").path == kept.of("b:1,A:1").path


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o606])
def test_login_that_others_can_read_is_refused(mode: int, place: Place) -> None:
    place.write(login())
    place.path.chmod(mode)

    with pytest.raises(InvalidArgument, match="chmod 600"):
        place.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_login_of_another_user_is_refused(place: Place) -> None:
    place.write(login())
    os.chown(place.path, 12345, 12345)

    with pytest.raises(InvalidArgument, match="belongs to user 12345"):
        place.read()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"server": "x"}', '"' + "x" * 100 + '"', "[" * 100_000, "\udcff\udcfe"]
)
def test_corrupt_login_is_refused_without_its_text(text: str, place: Place) -> None:
    place.write(login())
    place.path.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(InvalidArgument, match="headway logout") as raised:
        place.read()
    assert raised.value.__cause__ is None
    assert "xxx" not in str(raised.value)


def test_login_with_a_time_that_is_none_is_refused(place: Place) -> None:
    place.write(login(expires_at=float("inf")))

    with pytest.raises(InvalidArgument, match="headway logout"):
        place.read()


class Keyring:
    """A backend of `keyring`."""

    priority = 5

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.held.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.held[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.held[service, name]


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> Keyring:
    """Return the keyring of a system that has one."""
    made = Keyring()
    fail: Any = types.ModuleType("keyring.backends.fail")
    fail.Keyring = type("Keyring", (), {})
    backends: Any = types.ModuleType("keyring.backends")
    backends.fail = fail
    module: Any = types.ModuleType("keyring")
    module.get_keyring, module.backends = lambda: made, backends
    for name, each in (("keyring", module), ("keyring.backends", backends), ("keyring.backends.fail", fail)):
        monkeypatch.setitem(sys.modules, name, each)
    return made


def test_secrets_are_in_the_keyring_where_there_is_one(keyring: Keyring, place: Place) -> None:
    place.write(login())

    assert place.read() == replace(login(), obtained_at=place.read().obtained_at, expires_at=place.read().expires_at)
    assert "secret" not in place.path.read_text()
    assert "a-refresh-token" not in place.path.read_text()
    place.forget()
    assert keyring.held == {}
    assert not place.exists()


def test_login_whose_keyring_has_lost_it_is_refused(keyring: Keyring, place: Place) -> None:
    place.write(login())
    keyring.held.clear()

    with pytest.raises(InvalidArgument, match="headway logout"):
        place.read()


@pytest.mark.parametrize("does", ["get_password", "set_password", "delete_password"])
def test_keyring_that_fails_is_an_error_without_its_words(
    does: str, keyring: Keyring, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked one raises an error of its own."""
    place.write(login())

    def locked(*_: str) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(keyring, does, locked)
    with pytest.raises(Unavailable, match="keyring cannot be used: RuntimeError: unlock it") as raised:
        {"get_password": place.read, "set_password": lambda: place.write(login()), "delete_password": place.forget}[
            does
        ]()
    assert "a secret" not in str(raised.value)


def test_command_says_that_the_keyring_is_locked(
    keyring: Keyring, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(login())

    def locked(*_: str) -> None:
        raise RuntimeError

    monkeypatch.setattr(keyring, "get_password", locked)
    with pytest.raises(Usage, match=f"the login for {SERVER}: the system's keyring cannot be used"):
        kept_token(SERVER)


def test_remains_of_a_killed_process_are_replaced_and_removed(place: Place) -> None:
    place.write(login())
    beside = place.path.with_suffix(".new")
    beside.write_text("a.secret.token")
    place.write(login())
    assert not beside.exists()
    beside.write_text("a.secret.token")
    place.forget()
    assert not beside.exists()


def test_folder_that_cannot_be_made_is_an_error(tmp_path: Path, place: Place) -> None:
    (tmp_path / "headway").write_text("")

    with pytest.raises(Unavailable, match=r"cannot be kept in .*: Not a directory: make it writable"):
        place.write(login())


async def test_refresh_token_is_spent_only_if_the_next_can_be_kept(
    provider: OidcProvider, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a keyring that has been locked."""
    place.write(login(provider, left=-1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left on device"):
            await RenewedToken(place).renew_if_due()
    assert provider.asked["refresh_token"] == 0

    await RenewedToken(place).renew_if_due()


async def test_token_that_expires_soon_is_renewed(provider: OidcProvider, place: Place) -> None:
    place.write(login(provider, left=10))
    token = RenewedToken(place)
    before = token()

    async with kept_fresh(token):
        assert token() != before

    assert (provider.asked["refresh_token"], place.read().id_token) == (1, token())
    async with kept_fresh(token):
        assert provider.asked["refresh_token"] == 1


async def test_token_is_renewed_again_and_again(provider: OidcProvider, place: Place) -> None:
    """Each renewal brings the refresh token of the next one."""
    provider.life = 1
    place.write(login(provider, left=0))
    token = RenewedToken(place)

    with trio.fail_after(20):
        async with kept_fresh(token):
            await provider.wait_for("refresh_token", 3)
    assert provider.refused == 0


async def test_renewals_at_the_same_time_are_one(provider: OidcProvider, place: Place) -> None:
    """A refresh token that is used twice would end the login for everyone."""
    place.write(login(provider, left=0))
    tokens = [RenewedToken(place) for _ in range(5)]

    async with trio.open_nursery() as nursery:
        for each in tokens:
            nursery.start_soon(each.renew_if_due)

    assert (provider.asked["refresh_token"], provider.refused) == (1, 0)
    assert len({each() for each in tokens}) == 1


async def test_login_of_another_user_does_not_renew_this_one(provider: OidcProvider, place: Place) -> None:
    place.write(login(provider, left=0))
    provider.claims = {"sub": "eve"}

    with pytest.raises(Unauthenticated, match="another user"):
        await RenewedToken(place).renew_if_due()
    assert place.read().subject == "ada"


async def test_refused_renewal_says_how_to_log_in_again(provider: OidcProvider, place: Place) -> None:
    place.write(login(provider, left=10, refresh_token="stolen"))

    with pytest.raises(Unauthenticated, match=f"headway --server {SERVER} login {provider.url}"):
        await RenewedToken(place).renew_if_due()


async def test_issuer_that_is_down_is_an_error_only_for_an_expired_token(provider: OidcProvider, place: Place) -> None:
    provider.bodies["/token"] = 503, {}, b""
    place.write(login(provider, left=10))
    await RenewedToken(place).renew_if_due()
    place.write(login(provider, left=-1))

    with pytest.raises(Unavailable, match="got status 503"):
        await RenewedToken(place).renew_if_due()


async def test_refresh_token_survives_when_the_keys_cannot_be_read(provider: OidcProvider, place: Place) -> None:
    """The old one was spent. The next renewal uses the new one."""
    place.write(login(provider, left=-1))
    provider.bodies["/keys"] = 503, {}, b""
    with pytest.raises(Unavailable):
        await RenewedToken(place).renew_if_due()
    del provider.bodies["/keys"]

    await RenewedToken(place).renew_if_due()

    assert (provider.asked["refresh_token"], provider.refused) == (2, 0)


async def test_canceled_renewal_keeps_the_new_refresh_token(provider: OidcProvider, place: Place) -> None:
    """A Ctrl-C after the question to the issuer."""
    place.write(login(provider, left=-1))
    before = place.read().refresh_token
    with trio.CancelScope() as scope:
        provider.sign, signs = lambda *each: (scope.cancel(), signs(*each))[1], provider.sign
        await RenewedToken(place).renew_if_due()

    assert scope.cancel_called
    assert place.read().refresh_token != before
    assert place.read().due_at > time.time()
