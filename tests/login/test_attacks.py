"""Attacks on a login are refused: on the callback, on the answers of the issuer, and on the ID token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import rsa

from headway.errors import HeadwayError, InvalidArgument, Unauthenticated, Unavailable
from headway.login import KeptLogin, Request, by_browser, by_device, discovered, open_asker
from headway.login._provider import check_url
from tests.helpers.login_issuer import part, signed
from tests.helpers.oidc_provider import PASSWORD, USER, OidcProvider, http_client, serving_provider

OTHER_KEY = rsa.generate_private_key(65537, 2048)
ASKED = Request("127.0.0.1:7070", patience=60)
PATIENCE = 60


@pytest.fixture
async def provider() -> AsyncIterator[OidcProvider]:
    async with serving_provider() as running:
        yield running


def parameters(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


async def log_in(url: str) -> httpx.Response:
    """Do what the browser of a person does, and return the last page."""
    async with http_client() as browser:
        assert "<form" in (await browser.get(url)).text
        return await browser.post(url, data={"user": USER, "password": PASSWORD})


async def logged_in(provider: OidcProvider, browser: Callable[[str], Any] = log_in) -> KeptLogin:
    """Log in, with a browser that does something with the URL."""
    with trio.fail_after(PATIENCE):
        async with open_asker() as asker, trio.open_nursery() as nursery:
            found = await discovered(asker, provider.url)
            made = await by_browser(asker, found, ASKED, lambda url: nursery.start_soon(browser, url))
    return made


async def refused(provider: OidcProvider, browser: Callable[[str], Any] = log_in) -> HeadwayError:
    """Return the only error of a login."""
    with pytest.RaisesGroup(HeadwayError, flatten_subgroups=True, allow_unwrapped=True) as raised:
        await logged_in(provider, browser)
    error: Any = raised.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HeadwayError)
    assert not [each for each in provider.secrets if each in str(error)]
    return error


async def test_login_has_the_claims_of_the_issuer(provider: OidcProvider) -> None:
    """The request has PKCE, and the callback is one of loopback."""
    urls: list[str] = []

    async def browser(url: str) -> None:
        urls.append(url)
        assert "You are logged in" in (await log_in(url)).text

    made = await logged_in(provider, browser)

    assert (made.subject, made.groups, made.issuer, made.client) == ("ada", ("ops",), provider.url, "headway")
    given = parameters(urls[0])
    assert (given["code_challenge_method"], given["scope"]) == ("S256", "openid offline_access")
    assert given["redirect_uri"].startswith("http://127.0.0.1:")
    assert made.id_token not in repr(made)


def without_signature(_: Any, payload: Any) -> str:
    return f"{part({'alg': 'none', 'kid': 'a'})}.{part(payload)}."


def with_shared_secret(_: Any, payload: Any) -> str:
    return signed({"alg": "HS256", "kid": "a"}, payload)


def with_another_key(header: Any, payload: Any) -> str:
    return signed(header, payload, OTHER_KEY)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sign": without_signature}, "it has no signature"),
        ({"sign": with_shared_secret}, "its alg 'HS256' is not one of the issuer's algorithms"),
        ({"sign": with_another_key}, "its signature is not one of key 'a'"),
        ({"header": {"kid": "z"}}, "its issuer has no key 'z'"),
        ({"header": {"jku": "https://evil.example.com"}}, "its header has jku"),
        ({"claims": {"nonce": "of-another-login"}}, "its nonce is not the one of this login"),
        ({"claims": {"nonce": None}}, "its nonce is not the one of this login"),
        ({"claims": {"aud": "another"}}, "has none of the issuer's audiences"),
        ({"claims": {"aud": ["headway", "another"]}}, "several audiences and no azp"),
        ({"claims": {"azp": "another"}}, "its azp 'another' is not this client"),
        ({"claims": {"iss": "https://evil.example.com"}}, "its issuer 'https://evil.example.com'"),
        ({"claims": {"exp": 1}}, "it has expired"),
        ({"claims": {"exp": None}}, "exp"),
        ({"claims": {"exp": 10**400}}, "is not a time in seconds"),
        ({"claims": {"nbf": 2**33}}, "not"),
        ({"claims": {"sub": None}}, "its sub must be"),
    ],
)
async def test_id_token_that_is_not_for_this_login_is_refused(
    changes: dict[str, Any], why: str, provider: OidcProvider
) -> None:
    for name, value in changes.items():
        setattr(provider, name, value)

    error = await refused(provider)

    assert isinstance(error, Unauthenticated)
    assert "its ID token is refused" in str(error)
    assert why in str(error)


async def test_clocks_may_differ_by_half_a_minute(provider: OidcProvider) -> None:
    provider.life = -20

    assert (await logged_in(provider)).subject == "ada"


@pytest.mark.parametrize(
    ("back", "why"),
    [
        ({"iss": "https://evil.example.com"}, "is of another issuer"),
        ({"iss": None}, "lacks iss"),
        ({"code": None}, "its answer has no code"),
        ({"code": "of-another-login"}, "invalid_grant: <b>PKCE</b>"),
        ({"error": "access_denied", "error_description": "<script>\x1b[31m"}, "refused the login: access_denied"),
    ],
)
async def test_wrong_answer_of_the_browser_is_refused(
    back: dict[str, str | None], why: str, provider: OidcProvider
) -> None:
    """A mix-up of issuers, an injected code, and an error with HTML and escapes, which is shown as plain text."""
    provider.back = back
    pages: list[str] = []

    async def browser(url: str) -> None:
        pages.append((await log_in(url)).text)

    error = await refused(provider, browser)

    assert isinstance(error, Unauthenticated)
    assert why in str(error)
    assert "\x1b" not in str(error)
    assert "<" not in "".join(pages)
    if "grant" not in why:
        assert provider.asked["authorization_code"] == 0


async def test_code_of_another_login_is_refused_by_the_verifier(provider: OidcProvider) -> None:
    """An attacker's code, which the issuer has given out, fits another verifier."""
    stolen: list[str] = []

    async def keep(url: str) -> None:
        async with http_client(follow_redirects=False) as browser:
            answer = await browser.post(url, data={"user": USER, "password": PASSWORD})
        stolen.append(parameters(answer.headers["location"])["code"])
        await log_in(url)

    await logged_in(provider, keep)

    async def inject(url: str) -> None:
        given = parameters(url)
        query = {"code": stolen[0], "state": given["state"], "iss": provider.url}
        async with http_client(follow_redirects=False) as browser:
            await browser.get(f"{given['redirect_uri']}?{urlencode(query)}")

    assert "invalid_grant" in str(await refused(provider, inject))


async def test_target_that_is_no_url_ends_no_login(provider: OidcProvider) -> None:
    """Any page, and any process of this machine, may send one to the callback."""

    async def browser(url: str) -> None:
        port = int(parameters(url)["redirect_uri"].split(":")[2].split("/")[0])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET //[ HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port)
            assert b" 400 " in await stream.receive_some(4096)
        await log_in(url)

    await logged_in(provider, browser)


async def test_requests_that_are_not_the_answer_change_nothing(provider: OidcProvider) -> None:
    """A forged state, an answer by POST, another path or host, a redirect: the login still succeeds after them."""
    statuses: list[int] = []

    async def browser(url: str) -> None:
        given = parameters(url)
        back, state = given["redirect_uri"], given["state"]
        base = back.removesuffix("/callback")
        right = urlencode({"code": "x", "state": state, "iss": provider.url})
        async with http_client(follow_redirects=False) as http:
            for each in (
                http.get(f"{back}?code=x&state=forged"),
                http.get(f"{back}?code=x"),
                http.get(f"{back}?error=access_denied"),
                http.post(f"{back}?{right}"),
                http.get(f"{base}/?{right}"),
                http.get(f"{base}//evil.example.com/%2e%2e?{right}"),
                http.get(f"{base}//[", extensions={"target": b"//["}),
                http.get(base, extensions={"target": b"http://[/"}),
                http.get(f"{back}?{right}", headers={"host": "evil.example.com"}),
                http.get(f"{back}?next=https://evil.example.com&state=forged"),
            ):
                answer = await each
                statuses.append(answer.status_code)
                assert "location" not in answer.headers
                assert "evil" not in answer.text
        await log_in(url)

    assert (await logged_in(provider, browser)).subject == "ada"
    assert set(statuses) == {400, 404}


async def test_answer_counts_once(provider: OidcProvider) -> None:
    """A second answer with the same state is not one."""
    pages: list[str] = []

    async def browser(url: str) -> None:
        given = parameters(url)
        async with http_client(follow_redirects=False) as http:
            answer = await http.post(url, data={"user": USER, "password": PASSWORD})
            pages.append((await http.get(answer.headers["location"])).text)
            again = urlencode({"code": "x", "state": given["state"], "iss": provider.url})
            with pytest.raises(httpx.TransportError):
                await http.get(f"{given['redirect_uri']}?{again}")

    assert (await logged_in(provider, browser)).subject == "ada"
    assert "You are logged in" in pages[0]
    assert provider.asked["authorization_code"] == 1


async def test_answer_with_a_parameter_twice_is_refused(provider: OidcProvider) -> None:
    async def browser(url: str) -> None:
        given = parameters(url)
        pairs = [("code", "x"), ("code", "y"), ("state", given["state"]), ("iss", provider.url)]
        async with http_client(follow_redirects=False) as http:
            await http.get(f"{given['redirect_uri']}?{urlencode(pairs)}")

    assert "a parameter twice" in str(await refused(provider, browser))


@pytest.mark.parametrize(
    ("document", "error", "why"),
    [
        ({"issuer": "https://evil.example.com"}, Unauthenticated, "its issuer is 'https://evil.example.com'"),
        ({"code_challenge_methods_supported": ["plain"]}, Unauthenticated, "PKCE with S256"),
        ({"token_endpoint": "http://login.example.com/token"}, InvalidArgument, "loopback only"),
        ({"jwks_uri": "file:///etc/passwd"}, InvalidArgument, "must be an https:// URL"),
        ({"authorization_endpoint": "javascript:alert(1)"}, InvalidArgument, "must be an https:// URL"),
        ({"token_endpoint": 7}, InvalidArgument, "must be an https:// URL"),
    ],
)
async def test_discovery_document_that_is_not_of_this_issuer_is_refused(
    document: dict[str, Any], error: type[HeadwayError], why: str, provider: OidcProvider
) -> None:
    provider.document = document

    async with open_asker() as asker:
        with pytest.raises(error) as raised:
            await discovered(asker, provider.url)

    assert why in str(raised.value)
    assert set(provider.asked) <= {"/.well-known/openid-configuration", ""}


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example.com",
        "http://127.0.0.1.example.com",
        "ftp://127.0.0.1",
        "https://ada@login.example.com",
        "https://login.example.com#x",
        "https://login.example.com:99999",
        "https://",
        "https://login.example.com/\n",
    ],
)
def test_issuer_that_cannot_keep_a_secret_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="https://"):
        check_url("the issuer", url)


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys"])
async def test_endless_answer_is_refused(path: str, provider: OidcProvider) -> None:
    provider.endless = {path}

    error = await refused(provider)

    assert isinstance(error, Unavailable)
    assert "more than 262144 bytes" in str(error)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((400, {"content-type": "text/html"}, b"<script>alert(1)</script>"), "refused the login: status 400"),
        ((200, {"content-type": "text/html"}, b"<script>alert(1)</script>"), "has no id_token"),
        ((302, {"location": "http://127.0.0.1:1/"}, b""), "got status 302"),
        ((503, {}, b"<h1>down</h1>"), "got status 503"),
        ((200, {}, json.dumps({"id_token": ["x"]}).encode()), "id_token must be"),
        ((200, {}, b"[" * 100_000), "has no id_token"),
    ],
)
async def test_wrong_answer_of_the_token_endpoint_is_refused(
    answer: tuple[int, dict[str, str], bytes], why: str, provider: OidcProvider
) -> None:
    """It is not shown, and no redirect is followed."""
    provider.bodies["/token"] = answer

    error = await refused(provider)

    assert why in str(error)
    assert "<" not in str(error)


async def test_silent_issuer_takes_ten_seconds(provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a fifth of one, because real sockets know no other clock."""
    monkeypatch.setattr("headway.login._provider.TIMEOUT", 0.2)
    provider.silent = {"/token"}

    assert "no complete answer within 0.2 s" in str(await refused(provider))


async def test_login_that_nobody_answers_ends(provider: OidcProvider) -> None:
    async with open_asker() as asker:
        found = await discovered(asker, provider.url)
        with pytest.raises(Unavailable, match=r"no login within 0\.1 s"):
            await by_browser(asker, found, ASKED._replace(patience=0.1), lambda _: None)


async def test_device_is_logged_in_when_the_person_approves(provider: OidcProvider) -> None:
    shown: list[tuple[str, str]] = []

    def show(url: str, code: str) -> None:
        shown.append((url, code))
        provider.approve()

    with trio.fail_after(PATIENCE):
        async with open_asker() as asker:
            made = await by_device(asker, await discovered(asker, provider.url), ASKED, show)

    assert made.subject == "ada"
    assert shown == [(f"{provider.url}/activate", "WDJB-MJHT")]


async def test_device_that_is_refused_ends(provider: OidcProvider) -> None:
    """An answer other than pending is not asked for again."""
    provider.bodies["/token"] = 400, {}, json.dumps({"error": "access_denied"}).encode()

    with trio.fail_after(PATIENCE):
        async with open_asker() as asker:
            found = await discovered(asker, provider.url)
            with pytest.raises(Unauthenticated, match="access_denied"):
                await by_device(asker, found, ASKED, lambda *_: None)
    assert provider.asked["/token"] == 1
