"""Keys from a real issuer over HTTPS: discovery, rotation, strangers, and an issuer that fails. Time is virtual."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ed25519
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.access import Access, Authorizer, Binding, Identity, Issuer, Policy, keep_keys, read_keys
from headway.base import repr_text
from headway.errors import PermissionDenied
from headway.events import IssuerFailed, IssuerKeysChanged, IssuerKeysRead
from headway.rpc import TOKEN_HEADER
from tests.access.logins import ALL
from tests.helpers.login_issuer import ED_KEY, RSA_KEY, LoginIssuer, jwks, public_jwk, serving_issuer, signed

# In frozen time, a report that never comes would be waited for until the timeout of all tests.
pytestmark = pytest.mark.timeout(30)

DISCOVERY = "/.well-known/openid-configuration"


class Kept:
    """An authorizer whose keys are kept, and what its keeper has reported."""

    def __init__(self, issuer: LoginIssuer, **options: Any) -> None:
        binding = Binding(claims={"groups": "ops"}, policies=["operators"])
        given = {"name": "corp", "issuer": issuer.url, "audiences": ["headway"], "authority": issuer.authority}
        self.known = Issuer(**{**given, "bindings": [binding], **options})
        self.authorizer = Authorizer(Access([Policy("operators", [ALL])], issuers=[self.known]))
        self.events: list[object] = []
        self._reported = trio.Event()

    def report(self, event: object) -> None:
        self.events.append(event)
        self._reported.set()
        self._reported = trio.Event()

    async def reports(self, kind: type, count: int = 1) -> list[Any]:
        """Wait until this many events of a class were reported."""
        while len(found := [event for event in self.events if isinstance(event, kind)]) < count:
            await self._reported.wait()
        return found

    async def identify(self, text: str) -> Identity:
        """Identify a caller as the guard of a service does."""
        await self.authorizer.wait_for_keys({TOKEN_HEADER: text})
        return self.authorizer.identify({TOKEN_HEADER: text})

    async def reason(self, text: str) -> str:
        """Return why a token is refused."""
        with pytest.raises(PermissionDenied):
            await self.identify(text)
        return self.authorizer.refusal({TOKEN_HEADER: text}).reason


@asynccontextmanager
async def kept(path: Path, **options: Any) -> AsyncIterator[tuple[LoginIssuer, Kept]]:
    """Run an issuer, and a keeper of its keys."""
    async with serving_issuer(path) as issuer, trio.open_nursery() as nursery:
        made = Kept(issuer, **options)
        await nursery.start(keep_keys, made.authorizer, made.report)
        yield issuer, made
        nursery.cancel_scope.cancel()


async def test_first_login_waits_for_the_keys(tmp_path: Path) -> None:
    """A server that has just started accepts the first caller, and asks the issuer once."""
    async with kept(tmp_path) as (issuer, made):
        assert (await made.identify(issuer.token())).name == "corp/ada"
        assert (await made.identify(issuer.token(sub="grace"))).name == "corp/grace"

        assert issuer.asked == [DISCOVERY, "/keys"]
        assert issuer.agents == {"headway"}
        assert made.events == [IssuerKeysRead("corp", 1), IssuerKeysChanged("corp", ("a",), "", 0)]


async def test_new_key_is_found_when_a_login_names_it(tmp_path: Path, mock_clock: MockClock) -> None:
    """An issuer may publish a key and sign with it at once."""
    async with kept(tmp_path) as (issuer, made):
        await made.reports(IssuerKeysRead)
        issuer.keys["new"] = ED_KEY
        mock_clock.jump(11)

        assert (await made.identify(issuer.token("new"))).name == "corp/ada"
        assert issuer.asked == [DISCOVERY, "/keys"] * 2


async def test_strangers_cause_a_bounded_number_of_requests(tmp_path: Path, mock_clock: MockClock) -> None:
    """A thousand unknown kids within 30 seconds cause one reading in ten seconds, and none waits for its turn."""
    async with kept(tmp_path) as (issuer, made):
        await made.reports(IssuerKeysRead)
        stranger = ed25519.Ed25519PrivateKey.generate()
        for number in range(1000):
            text = signed({"alg": "EdDSA", "kid": f"k{number}"}, {"iss": issuer.url}, stranger)
            assert await made.reason(text) == "unknown_key"
            if number % 100 == 99:
                mock_clock.jump(3)
        await made.reports(IssuerKeysRead, 3)

        assert 6 <= len(issuer.asked) <= 8


async def test_unknown_kid_is_remembered_until_the_keys_may_be_read(tmp_path: Path, mock_clock: MockClock) -> None:
    """A key that is published too soon after the last reading is found ten seconds after it, not minutes later."""
    async with kept(tmp_path) as (issuer, made):
        await made.reports(IssuerKeysRead)
        issuer.keys["new"] = ED_KEY

        assert await made.reason(issuer.token("new")) == "unknown_key"
        mock_clock.jump(9.9)
        await wait_all_tasks_blocked(0.01)
        assert len(issuer.asked) == 2
        mock_clock.jump(0.1)
        await made.reports(IssuerKeysRead, 2)
        assert (await made.identify(issuer.token("new"))).name == "corp/ada"


async def test_removed_key_is_refused_at_the_next_reading(tmp_path: Path, mock_clock: MockClock) -> None:
    """An issuer that has lost a key takes it out of its set, and logins by it end, also those that were verified."""
    async with kept(tmp_path, refresh_interval=60) as (issuer, made):
        identity, ended = await made.identify(issuer.token()), []
        made.authorizer.follow(identity, lambda: ended.append(1))
        text = issuer.token()
        del issuer.keys["a"]
        issuer.keys["b"] = ED_KEY
        mock_clock.jump(60)
        await made.reports(IssuerKeysChanged, 2)

        assert not identity.is_current()
        assert ended == [1]
        assert await made.reason(text) == "unknown_key"
        assert made.events[-1] == IssuerKeysChanged("corp", ("b",), "", 1)


async def test_failing_issuer_keeps_its_keys_until_they_are_stale(tmp_path: Path, mock_clock: MockClock) -> None:
    """It is asked again and again, ever later. After the stated time, its logins end."""
    async with kept(tmp_path, refresh_interval=60, stale_limit=600) as (issuer, made):
        identity, text = await made.identify(issuer.token()), issuer.token(sub="grace")
        issuer.bodies["/keys"] = 503, {}, b""
        mock_clock.jump(60)
        (failed,) = await made.reports(IssuerFailed)
        assert (failed.issuer, failed.keys) == ("corp", 1)
        assert failed.why == f"{issuer.url}/keys: the answer has status 503, not 200"
        assert failed.seconds == 540
        assert (await made.identify(text)).name == "corp/grace"

        while trio.current_time() < 590:
            mock_clock.jump(10)
            await wait_all_tasks_blocked(0.005)
        assert identity.is_current()
        mock_clock.jump(10)
        changed = await made.reports(IssuerKeysChanged, 2)
        assert changed[-1] == IssuerKeysChanged("corp", (), "all of them are stale", 0)
        assert not identity.is_current()
        assert await made.reason(text) == "no_keys"
        failures = len(await made.reports(IssuerFailed))
        assert failures < 20

        del issuer.bodies["/keys"]
        mock_clock.jump(60)
        await made.reports(IssuerKeysChanged, 3)
        assert (await made.identify(text)).name == "corp/grace"


@pytest.mark.parametrize("name", ["no keys", "keys of no use", "private keys"])
async def test_keys_end_when_the_issuer_publishes_none_that_can_be_used(
    name: str, tmp_path: Path, mock_clock: MockClock
) -> None:
    """An empty set is an answer: an issuer revokes its only key so. It is asked again soon, as after any failure."""
    sets = {
        "no keys": '{"keys": []}',
        "keys of no use": jwks(public_jwk(RSA_KEY, kid="a", use="enc")),
        "private keys": jwks(public_jwk(RSA_KEY, kid="a"), {"kty": "oct", "k": "AQAB"}),
    }
    async with kept(tmp_path, refresh_interval=60) as (issuer, made):
        identity, text = await made.identify(issuer.token()), issuer.token(sub="grace")
        issuer.bodies["/keys"] = 200, {}, sets[name].encode()
        mock_clock.jump(60)
        (failed,) = await made.reports(IssuerFailed)
        assert (failed.keys, failed.seconds) == (0, 0)
        changed = await made.reports(IssuerKeysChanged, 2)
        assert changed[-1] == IssuerKeysChanged("corp", (), "all of them are withdrawn", 0)
        assert not identity.is_current()
        assert await made.reason(text) == "no_keys"

        del issuer.bodies["/keys"]
        mock_clock.jump(1)
        await made.reports(IssuerKeysChanged, 3)
        assert (await made.identify(text)).name == "corp/grace"


async def test_failing_issuer_is_not_asked_more_often_by_strangers(tmp_path: Path, mock_clock: MockClock) -> None:
    """The pause after a failure grows, whatever tokens ask for."""
    async with kept(tmp_path) as (issuer, made):
        issuer.bodies[DISCOVERY] = 500, {}, b""
        for number in range(300):
            await made.reason(signed({"alg": "EdDSA", "kid": f"k{number}"}, {"iss": issuer.url}, ED_KEY))
            mock_clock.jump(1)

        assert 7 <= len(issuer.asked) <= 10


WRONG: dict[str, tuple[str, tuple[int, dict[str, str], bytes], str]] = {
    "another issuer": (DISCOVERY, (200, {}, b'{"issuer": "https://evil.example.com"}'), "its issuer is 'https://evil"),
    "no issuer": (DISCOVERY, (200, {}, b"{}"), "its issuer is None"),
    "not JSON": (DISCOVERY, (200, {}, b"<html>"), "is not a JSON object"),
    "a list": (DISCOVERY, (200, {}, b"[]"), "is not a JSON object"),
    "deep": (DISCOVERY, (200, {}, b"[" * 100_000), "is not a JSON object"),
    "a redirect": (DISCOVERY, (302, {"location": "/keys"}, b""), "has status 302"),
    "large": (DISCOVERY, (200, {}, b" " * 300_000), "has more than 262144 bytes"),
    "compressed": ("/keys", (200, {"content-encoding": "gzip"}, gzip.compress(b" " * 10**6)), "is compressed"),
    "no keys": ("/keys", (200, {}, b'{"keys": []}'), "has no key that can be used"),
    "private keys": ("/keys", (200, {}, jwks({"kty": "oct", "k": "AQAB"}).encode()), "a private key or a secret"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_answer_is_reported_and_gives_no_keys(name: str, tmp_path: Path) -> None:
    """The report names the URL and what is wrong."""
    path, body, why = WRONG[name]
    async with kept(tmp_path) as (issuer, made):
        issuer.bodies[path] = body
        text = issuer.token()
        (failed,) = await made.reports(IssuerFailed)

        assert why in failed.why
        assert failed.why.startswith(f"{issuer.url}{path}: ")
        assert await made.reason(text) == "no_keys"


URIS = [
    "http://localhost/keys",
    "file:///etc/keys.json",
    "https://user@localhost/",
    f"https://localhost/{'a' * 2_000}",
    7,
    None,
]


@pytest.mark.parametrize("uri", URIS, ids=lambda uri: str(uri)[:30])
async def test_keys_come_over_https_alone(uri: object, tmp_path: Path) -> None:
    """Otherwise a host on the way could replace them. No answer of an issuer makes a long line in the log."""
    async with kept(tmp_path) as (issuer, made):
        document = {"issuer": issuer.url, "jwks_uri": uri}
        issuer.bodies[DISCOVERY] = 200, {}, json.dumps(document).encode()
        (failed,) = await made.reports(IssuerFailed)

        assert failed.why == f"{issuer.url}{DISCOVERY}: its jwks_uri {repr_text(uri)} must be an https:// URL"


async def test_issuer_with_a_certificate_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    """The access file names the authority."""
    async with serving_issuer(tmp_path) as other, kept(tmp_path, authority=other.authority) as (issuer, made):
        (failed,) = await made.reports(IssuerFailed)

        assert "certificate verify failed" in failed.why
        assert issuer.asked == []


async def test_silent_issuer_takes_ten_seconds(tmp_path: Path, mock_clock: MockClock) -> None:
    """A caller waits for five. The loop is free all the time."""
    async with kept(tmp_path) as (issuer, made), trio.open_nursery() as nursery:
        issuer.silent = True
        refused: list[str] = []

        async def log_in() -> None:
            refused.append(await made.reason(issuer.token()))
            # The guard of an HTTP request and the request itself wait for the same reading.
            refused.append(await made.reason(issuer.token()))
            mock_clock.jump(5.5)

        nursery.start_soon(log_in)
        while not issuer.asked:
            await wait_all_tasks_blocked()
        mock_clock.jump(4.9)
        await wait_all_tasks_blocked()
        assert not refused
        mock_clock.jump(0.1)
        (failed,) = await made.reports(IssuerFailed)

        assert refused == ["no_keys"] * 2
        assert failed.why == f"{issuer.url}: no complete answer within 10 s"


async def test_keys_in_a_file_rotate(tmp_path: Path, mock_clock: MockClock) -> None:
    """The file is read again within ten seconds. One that others can write is not believed."""
    path = tmp_path / "keys.json"
    async with serving_issuer(tmp_path) as issuer, trio.open_nursery() as nursery:
        path.write_text(jwks(public_jwk(ED_KEY, kid="d")))
        path.chmod(0o644)
        issuer.keys["d"] = ED_KEY
        made = Kept(issuer, jwks_file=str(path), authority="")
        await nursery.start(keep_keys, made.authorizer, made.report)
        assert (await made.identify(issuer.token("d"))).name == "corp/ada"

        path.write_text(jwks(public_jwk(issuer.keys["a"], kid="a")))
        mock_clock.jump(10)
        await made.reports(IssuerKeysChanged, 2)
        assert (await made.identify(issuer.token("a"))).name == "corp/ada"

        path.chmod(0o666)
        mock_clock.jump(10)
        (failed,) = await made.reports(IssuerFailed)
        assert failed.why == f"{path} cannot be read: users other than its owner can change it: chmod 644 {path}"
        assert (await made.identify(issuer.token("a", sub="grace"))).name == "corp/grace"
        assert issuer.asked == []
        nursery.cancel_scope.cancel()


async def test_reload_of_the_access_file_brings_new_keys_at_once(tmp_path: Path, mock_clock: MockClock) -> None:
    """The keys that a reload has read are used even if those before them are stale."""
    path = tmp_path / "keys.json"
    async with serving_issuer(tmp_path) as issuer, trio.open_nursery() as nursery:
        issuer.keys["d"] = ED_KEY
        path.write_text(jwks(public_jwk(ED_KEY, kid="d")))
        made = Kept(issuer, jwks_file=str(path), authority="", stale_limit=60, refresh_interval=60)
        await nursery.start(keep_keys, made.authorizer, made.report)
        await made.identify(issuer.token("d"))
        path.unlink()
        while made.authorizer.logins.rings["corp"].keys:
            mock_clock.jump(10)
            await wait_all_tasks_blocked(0.005)
        assert await made.reason(issuer.token("d")) == "no_keys"

        keys = {"corp": read_keys(jwks(public_jwk(issuer.keys["a"], kid="a")))}
        made.authorizer.replace(Access([Policy("operators", [ALL])], issuers=[made.known], keys=keys))
        for _ in range(3):
            assert (await made.identify(issuer.token("a"))).name == "corp/ada"
            await wait_all_tasks_blocked(0.005)
        nursery.cancel_scope.cancel()
