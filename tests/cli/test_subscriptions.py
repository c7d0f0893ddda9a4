"""Subscriptions to a served process: changed policies, kill -9 and a restart; and `headway watch team,account`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
import trio

import headway
from headway.access import entry as entry_of
from headway.access import new_token
from headway.client import Client
from tests.cli.conftest import Started, address_of
from tests.cli.served import ACCOUNT, TEAM, Account, apps
from tests.cli.terminal import Terminal

POLICIES = """\
policies:
  - name: readers
    rules:
      - {{verbs: [{verbs}], type: staff.*.*, partition: "*", namespace: "*"{more}}}
tokens:
"""


def changed(batch: headway.subscribing.SubscriptionBatch) -> list[str]:
    """Return what a batch has changed. The statuses that the served controller writes are left out."""
    found = []
    for event in batch.events:
        assert not isinstance(event, headway.subscribing.Published)
        sign = "-" if isinstance(event, headway.client.Deleted) else ""
        if batch.snapshot or sign or not event.resource.status:
            found.append(f"{sign}{event.resource.type.name.kind} {event.resource.name}")
    return sorted(found)


async def next_change(batches: headway.subscribing.Subscription) -> tuple[bool, list[str]]:
    while True:
        batch = await anext(batches)
        if batch.snapshot or changed(batch):
            return batch.snapshot, changed(batch)


def served(start: Started, folder: Path, listen: str, *more: str) -> tuple[subprocess.Popen[str], str]:
    process = start(
        "serve", "tests.cli.served:apps", "--store", f"sqlite:{folder / 'staff.db'}", "--listen", listen, *more
    )
    return process, address_of(process)


async def test_q5_policy_changed_by_sighup_begins_the_subscription_anew(start: Started, tmp_path: Path) -> None:
    """The client does so by itself, and sees what its new rights show."""
    text, token = new_token(["readers"])
    writer_text, writer = new_token(["writers"])
    file = tmp_path / "access.yaml"
    writers = '  - name: writers\n    rules:\n      - {verbs: ["*"], type: "*", partition: "*", namespace: "*"}\n'

    def write(verbs: str, more: str = "") -> None:
        rules = POLICIES.format(verbs=verbs, more=more)
        file.write_text(rules.replace("tokens:\n", f"{writers}tokens:\n") + entry_of(token) + entry_of(writer))
        file.chmod(0o600)

    write("view", ", name_prefix: a")
    process, where = served(start, tmp_path, "127.0.0.1:0", "--access", str(file))
    with trio.fail_after(60):
        async with headway.connect(where, *apps, token=writer_text) as admin:
            for name in ("a", "b"):
                await admin.create(ACCOUNT.new(name, Account(login=name)))
            subjects = [headway.Subject(ACCOUNT, name_prefix="a")]
            async with (
                headway.connect(where, *apps, token=text) as client,
                client.subscribe(subjects) as batches,
            ):
                assert await next_change(batches) == (True, ["Account a"])
                write("view")
                process.send_signal(signal.SIGHUP)
                assert await next_change(batches) == (True, ["Account a"])
                await admin.create(ACCOUNT.new("aa", Account(login="aa")))
                assert await next_change(batches) == (False, ["Account aa"])


async def written(client: Client, name: str) -> None:
    while True:
        try:
            await client.apply(ACCOUNT.new(name, Account(login=name)))
        except headway.errors.RemoteError:
            await trio.sleep(0.1)
        else:
            return


def shows(watching: subprocess.Popen[str], name: str) -> None:
    """Wait until the command has shown an account. Only its first snapshot may show one as found."""
    assert watching.stdout is not None
    for line in watching.stdout:
        if f"/{name} " in line:
            assert name == "before-0" or line.split()[1] == "stored", line
            return
    assert watching.stderr is not None
    pytest.fail(f"the command has ended: {watching.stderr.read()}")


@pytest.mark.wide
@pytest.mark.parametrize("kills", [1, 2])
async def test_subscription_survives_kill_and_restart_of_its_server(start: Started, tmp_path: Path, kills: int) -> None:
    """On a durable store it resumes: nothing is missed, repeated or taken back, and there is no second snapshot.

    With two kills, `headway watch team,account` follows as well.
    """
    process, where = served(start, tmp_path, "127.0.0.1:0", "--insecure")
    watching = [start("watch", "team,staff.account", server=where)] if kills > 1 else []
    with trio.fail_after(90):
        async with headway.connect(where, *apps) as client, client.subscribe([TEAM, ACCOUNT]) as batches:
            assert await next_change(batches) == (True, [])
            for turn in range(kills):
                await written(client, f"before-{turn}")
                assert await next_change(batches) == (False, [f"Account before-{turn}"])
                for each in watching:
                    await trio.to_thread.run_sync(shows, each, f"before-{turn}", abandon_on_cancel=True)
                process.kill()
                process.wait()
                process, _ = await trio.to_thread.run_sync(lambda: served(start, tmp_path, where, "--insecure"))
                await written(client, f"after-{turn}")
                assert await next_change(batches) == (False, [f"Account after-{turn}"])
                for each in watching:
                    await trio.to_thread.run_sync(shows, each, f"after-{turn}", abandon_on_cancel=True)
            position = batches.position
        assert position is not None

        kept = headway.subscription.SubscriptionPosition.parse(str(position))
        async with headway.connect(where, *apps) as client:
            await client.delete(ACCOUNT.id("before-0"))
            async with client.subscribe([TEAM, ACCOUNT], resume_after=kept) as batches:
                assert await next_change(batches) == (False, ["-Account before-0"])


async def test_watch_of_several_types_shows_their_changes_in_order(headway: Terminal) -> None:
    """The kind comes first. In JSON each change is one line."""
    await headway("apply", "-f", "-", stdin="type: Site\nname: north\n")
    await headway("apply", "-f", "-", stdin="type: staff.v1.Account\nname: ada\n")
    lines = headway.start("watch", "site,staff.account")
    documents = headway.start("watch", "site,staff.account", "-o", "json")
    found = sorted([await lines.out.line(), await lines.out.line()])
    assert re.fullmatch(r"Account +found +default/default/ada +\d+\n", found[0])
    assert re.fullmatch(r"Site +found +north +\d+\n", found[1])
    assert {json.loads(await documents.out.line())["event"] for _ in range(2)} == {"found"}

    await headway("delete", "site", "north")
    assert re.fullmatch(r"Site +deleted +north +\d+\n", await lines.out.line())
    await headway("apply", "-f", "-", stdin="type: staff.v1.Account\nname: ada\ndata: {login: x}\n")
    assert re.fullmatch(r"Account +stored +default/default/ada +\d+\n", await lines.out.line())
    said = json.loads(await documents.out.line())
    assert (said["event"], said["resource"]["name"]) == ("deleted", "north")
