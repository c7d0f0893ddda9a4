"""A stock grpc-go program follows types by the rules that the guide gives to clients in other languages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

import headway
from headway import field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from tests.helpers.go_programs import need_go_program

PATIENCE = 50.0


@headway.message(name="followed.v1.Text")
class Text:
    text: str = field(1)


app = headway.App("followed")
TEAM = app.type("followed", "v1", "Team", Text)
SITE = app.type("followed", "v1", "Site", Text)
TEXT, TOKEN = new_token(["readers"])


def access(*kinds: str, prefix: str = "", revoked: bool = False) -> Access:
    """Return rights to watch these kinds, and to read what begins with the prefix."""
    rules = []
    for kind in kinds:
        type = f"followed.v1.{kind}"
        rules.append(Rule(verbs=["watch"], type=type, partition="*", namespace="*"))
        rules.append(Rule(verbs=["read"], type=type, partition="*", namespace="*", name_prefix=prefix))
    return Access([Policy("readers", rules)], [] if revoked else [TOKEN])


class Follower:
    """The running program, and the steps that it prints."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._stdout = process.stdout
        self._text = b""

    async def step(self, kind: str = "") -> dict[str, Any]:
        """Return the next step, which must be of this kind if one is given."""
        while b"\n" not in self._text:
            piece = await self._stdout.receive_some()
            assert piece, "the program has ended"
            self._text += piece
        line, _, self._text = self._text.partition(b"\n")
        step: dict[str, Any] = json.loads(line)
        assert kind in ("", step["step"]), step
        return step


@asynccontextmanager
async def follower(where: str, *types: headway.ResourceType[Any], resume: str = "") -> AsyncIterator[Follower]:
    program = str(need_go_program("resource-client"))
    names = ",".join(str(type.name) for type in types)
    command = [program, f"-address={where}", f"-token={TEXT}", f"-subscribe={names}", f"-resume={resume}"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield Follower(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                await pipe.aclose()


@asynccontextmanager
async def serving(store: str, rights: Authorizer, where: str = "127.0.0.1:0") -> AsyncIterator[headway.Engine]:
    async with headway.open_engine(store, app, network=headway.Network([where], access=rights)) as engine:
        await engine.wait_idle()
        yield engine


async def test_go_client_takes_a_new_snapshot_when_its_rights_change() -> None:
    """It keeps its state until the snapshot is complete. A revoked token ends the program."""
    rights = Authorizer(access("Team", "Site", prefix="a"))
    with trio.fail_after(PATIENCE):
        async with serving("memory:", rights) as engine:
            await engine.client.create(TEAM.new("a-core"))
            await engine.client.create(SITE.new("b-home"))
            async with follower(engine.addresses[0], TEAM, SITE) as following:
                assert (await following.step("snapshot"))["state"] == ["Team a-core"]
                await engine.client.create(SITE.new("a-home"))
                assert (await following.step("change"))["changed"] == ["Site a-home"]
                rights.replace(access("Team", "Site"))
                assert (await following.step("ended"))["why"] == "Aborted"
                assert (await following.step("new snapshot to follow"))["state"] == ["Site a-home", "Team a-core"]
                assert (await following.step("snapshot"))["state"] == ["Site a-home", "Site b-home", "Team a-core"]
                await engine.client.delete(SITE.id("a-home"))
                change = await following.step("change")
                assert (change["changed"], change["state"]) == (["-Site a-home"], ["Site b-home", "Team a-core"])
                rights.replace(access("Team", "Site", revoked=True))
                assert (await following.step("ended"))["why"] == "Unauthenticated"
                assert await following.process.wait() == 1


async def test_go_client_resumes_when_its_server_has_restarted(tmp_path: Path) -> None:
    """A later program resumes at the position that it is given. With other types, it begins with a snapshot."""
    store, rights = f"sqlite:{tmp_path}/followed.db", Authorizer(access("Team", "Site"))
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        async with serving(store, rights) as engine:
            where = engine.addresses[0]
            following = await stack.enter_async_context(follower(where, TEAM))
            await following.step("snapshot")
            await engine.client.create(TEAM.new("one"))
            kept = (await following.step("change"))["position"]
        async with serving(store, rights, where) as engine:
            while (step := await following.step())["step"] == "ended":
                assert (step["why"], step["state"]) == ("Unavailable", ["Team one"])
            assert (step["step"], step["state"]) == ("resumed", ["Team one"])
            await engine.client.create(TEAM.new("two"))
            assert (await following.step("change"))["state"] == ["Team one", "Team two"]

            async with follower(where, TEAM, resume=kept) as late:
                await late.step("resumed")
                assert (await late.step("change"))["changed"] == ["Team two"]
            async with follower(where, TEAM, SITE, resume=kept) as other:
                assert (await other.step("new snapshot to follow"))["why"]
                assert (await other.step("snapshot"))["state"] == ["Team one", "Team two"]
