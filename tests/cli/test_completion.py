"""Completion in a shell, by click's protocol of environment variables."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from headway import NAMESPACE, connect
from headway.cli import _completing, main
from headway.rpc import Health, Services, open_server
from tests.cli.served import TEAM, apps
from tests.cli.terminal import Terminal

Offered = Callable[[str, str], Awaitable[list[str]]]
NOWHERE = "127.0.0.1:1"


def complete(server: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the completions that bash gets for the last word. Nothing may be written to stderr."""
    given = f"headway {words}"
    monkeypatch.setenv("HEADWAY_SERVER", server)
    monkeypatch.setenv("_HEADWAY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", given)
    monkeypatch.setenv("COMP_CWORD", str(len(given.split(" ")) - 1))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(prog_name="headway", complete_var="_HEADWAY_COMPLETE")
    said = capsys.readouterr()
    assert said.err == ""
    return [line.removeprefix("plain,") for line in said.out.splitlines() if line]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """Return a function that completes in a thread, because a real shell is not the server's process."""

    async def ask(server: str, words: str) -> list[str]:
        return await trio.to_thread.run_sync(complete, server, words, monkeypatch, capsys)

    return ask


async def test_types_are_completed_from_the_server(offered: Offered, server: str) -> None:
    """Full names are offered, and kinds that only one type has. Case is ignored."""
    assert await offered(server, "get t") == [
        "team",
        "tenancy.v1.Namespace",
        "tenancy.v1.Partition",
        "tenancy.v1.Quota",
        "tombstone",
    ]
    assert await offered(server, "types STAFF.") == ["staff.v1.Account", "staff.v1.Site", "staff.v1.Team"]
    assert await offered(server, "list acc") == []


async def test_names_are_completed_from_the_server(offered: Offered, server: str) -> None:
    """They are the names of the given type in the given namespace."""
    async with connect(server, *apps) as client:
        for name in ("core", "cold", "other"):
            await client.write(TEAM.new(name))
        await client.write(NAMESPACE.new("lab"))
        await client.write(TEAM.new("colder", namespace="lab"))

    assert await offered(server, "get team co") == ["cold", "core"]
    assert await offered(server, "wait team ot") == ["other"]
    assert await offered(server, "delete -n lab team co") == ["colder"]
    assert await offered(f"{NOWHERE}", f"--server {server} get team co") == ["cold", "core"]


async def test_completion_is_empty_and_silent_without_an_answer(
    offered: Offered, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is missing, is not Headway or does not answer, or the type is unknown or ambiguous."""
    assert await offered(NOWHERE, "get te") == []
    assert await offered("no address", "get te") == []
    for type in ("unknown", "account"):
        assert await offered(server, f"get {type} co") == []
    async with open_server(Services(Health("other")), ["127.0.0.1:0"]) as other:
        assert await offered(other.addresses[0], "get te") == []

    monkeypatch.setattr(_completing, "PATIENCE", 0.2)
    async with trio.open_nursery() as nursery:
        silent = await nursery.start(trio.serve_tcp, keep_silent, 0)
        began = trio.current_time()
        assert await offered(f"127.0.0.1:{silent[0].socket.getsockname()[1]}", "get te") == []
        assert trio.current_time() - began < 10
        nursery.cancel_scope.cancel()


async def keep_silent(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_script_is_printed_for_each_shell(terminal: Terminal, shell: str, tmp_path: Path) -> None:
    """It sets the variable that requests completions. If the shell is installed, it accepts the script."""
    done = await terminal("completion", shell)

    assert done.returncode == 0
    assert f"_HEADWAY_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        (tmp_path / "script").write_text(done.stdout)
        await trio.run_process([shell, "-n", str(tmp_path / "script")])
