"""Clients whose token is renewed while they run: in a file, or by a function."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

import headway
from headway.access import REFUSED, Access, Authorizer, new_token
from headway.errors import InvalidArgument, PermissionDenied
from headway.rpc import token_file
from tests.access.logins import ISS, access, issuer
from tests.access.test_logins_over_network import HEADER, Hand
from tests.access.test_streams import TEAM, app, policy
from tests.helpers.login_issuer import claims, signed


def write(path: Path, text: str) -> None:
    """Replace a file at once, as Kubernetes does."""
    beside = path.with_name("new")
    beside.write_text(text)
    beside.chmod(0o600)
    beside.replace(path)


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    """While it cannot be read or has no token, the last token is used."""
    path = tmp_path / "token"
    write(path, "first\n")
    token = token_file(path)
    assert (token(), repr(token)) == ("first", f"token_file('{path}')")

    write(path, "second")
    assert token() == "second"
    for wrong in ("", "ä", "a\nb"):
        write(path, wrong)
        assert token() == "second"
    path.unlink()
    assert token() == "second"
    write(path, "third")
    path.chmod(0o644)
    assert token() == "second"
    path.chmod(0o600)
    assert token() == "third"


async def test_pipe_is_read_once(tmp_path: Path) -> None:
    """A shell gives one for ``--token-file <(get-token)``. Opening it again would block."""
    path = tmp_path / "token"
    os.mkfifo(path, 0o600)

    def fill() -> None:
        path.write_text("first\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, fill)
        token = await trio.to_thread.run_sync(token_file, path)

    assert (token(), token()) == ("first", "first")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", ValueError, "is empty; it must contain a token"),
        ("a\nb", InvalidArgument, "must be one line of ASCII characters"),
        (None, FileNotFoundError, "No such file"),
    ],
)
def test_wrong_file_is_an_error_at_the_start(
    text: str | None, error: type[Exception], message: str, tmp_path: Path
) -> None:
    """A program learns of it before it has connected."""
    if text is not None:
        write(tmp_path / "token", text)

    with pytest.raises(error, match=message):
        token_file(tmp_path / "token")


@pytest.mark.wide
async def test_worker_goes_on_when_its_login_is_renewed(tmp_path: Path) -> None:
    """Its watches end with the first login, resume with the second, and its run goes on."""
    hand = Hand()
    accepting = Authorizer(access(issuer(leeway=0)), clock=hand)
    path = tmp_path / "token"
    write(path, signed(HEADER, claims(ISS, exp=hand.now + 2)))
    counting = headway.App("counting")
    counting.registry.register(TEAM)
    seen: dict[str, trio.Event] = {"core": trio.Event(), "docs": trio.Event()}
    ended: list[object] = []
    resumed = trio.Event()

    @counting.controller(manages=TEAM)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        if request.id.name in seen:
            await rt.client.apply(TEAM.new(f"seen-{request.id.name}"))
            seen[request.id.name].set()

    def report(event: object) -> None:
        if isinstance(event, headway.events.RunEnded):
            ended.append(event)
        elif isinstance(event, headway.events.StreamOpened) and event.resume_after is not None:
            resumed.set()

    with trio.fail_after(30):
        async with headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], access=accepting)
        ) as engine:
            await engine.client.apply(TEAM.new("core"))
            workers = headway.open_workers(
                engine.addresses, counting, process="web-1", token=token_file(path), report=report
            )
            async with workers:
                await seen["core"].wait()
                write(path, signed(HEADER, claims(ISS, exp=hand.now + 3600)))
                hand.now += 10
                await resumed.wait()
                await engine.client.apply(TEAM.new("docs"))
                await seen["docs"].wait()
                assert ended == []


async def test_subscription_goes_on_when_its_token_is_renewed(tmp_path: Path) -> None:
    """Its stream ends with the token, and resumes with the next. Without one, the subscription ends."""
    (first, old), (second, new) = new_token(["readers"]), new_token(["readers"])
    accepting = Authorizer(Access([policy("view")], [old]))
    write(tmp_path / "token", first)
    with trio.fail_after(30):
        async with (
            headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=accepting)) as engine,
            headway.connect(engine.addresses, app, token=token_file(tmp_path / "token")) as client,
            client.subscribe([TEAM]) as batches,
        ):
            assert (await anext(batches)).snapshot
            write(tmp_path / "token", second)
            accepting.replace(Access([policy("view")], [new]))
            await engine.client.apply(TEAM.new("docs"))
            batch = await anext(batches)
            assert (batch.snapshot, len(batch.events)) == (False, 1)

            accepting.replace(Access([policy("view")], []))
            with pytest.raises(PermissionDenied, match=REFUSED):
                await anext(batches)


async def test_cache_goes_on_when_its_token_is_renewed(tmp_path: Path) -> None:
    """Its streams end with the token, and resume with the next. Without one, the block ends."""
    (first, old), (second, new) = new_token(["readers"]), new_token(["readers"])
    accepting = Authorizer(Access([policy("view")], [old]))
    write(tmp_path / "token", first)
    resumed, went_on = trio.Event(), trio.Event()

    def report(event: object) -> None:
        if isinstance(event, headway.events.StreamOpened) and event.resume_after is not None:
            resumed.set()

    async def follow(engine: headway.Engine) -> None:
        token = token_file(tmp_path / "token")
        async with headway.open_cache(engine.addresses, app, watches=[TEAM], token=token, report=report):
            write(tmp_path / "token", second)
            accepting.replace(Access([policy("view")], [new]))
            await resumed.wait()
            went_on.set()
            accepting.replace(Access([policy("view")], []))
            await trio.sleep_forever()

    with trio.fail_after(30):
        async with headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], access=accepting)
        ) as engine:
            with pytest.raises(PermissionDenied, match=REFUSED):
                await follow(engine)
    assert went_on.is_set()


async def test_function_is_asked_for_each_call() -> None:
    """A token that it returns must be one."""
    texts = [signed(HEADER, claims(ISS)), "a\nb"]

    def token() -> str:
        return texts[0]

    async with headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], access=Authorizer(access()))
    ) as engine:
        async with headway.connect(engine.addresses, app, token=token) as client:
            await client.apply(TEAM.new("core"))
            del texts[0]
            with pytest.raises(InvalidArgument, match="must be one line of ASCII"):
                await client.read(TEAM, "core")
        with pytest.raises(InvalidArgument, match="must be one line of ASCII"):
            async with headway.connect(engine.addresses, app, token=token):
                pytest.fail("the token is not one")


def test_file_of_others_is_refused(tmp_path: Path) -> None:
    """As for every file with a secret."""
    write(tmp_path / "token", "first")
    os.chmod(tmp_path / "token", 0o644)

    with pytest.raises(PermissionError, match="so that other users can read it"):
        token_file(tmp_path / "token")
