"""`headway peer`: tokens, establishing, listing and deleting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from headway import events, rpc
from headway.client import until
from headway.engine import Network, open_engine
from headway.peering import PEERING, generate_token, read_token, state_of
from tests.cli.served import apps
from tests.cli.terminal import Terminal
from tests.helpers.secret_files import write_secret


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """Return an authority whose certificate is in ``authority.pem``."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    return made


@pytest.fixture
async def west(tmp_path: Path, terminal: Terminal, authority: trustme.CA) -> AsyncIterator[Terminal]:
    """Return a terminal for a server with TLS. Its address is in ``west.txt``."""
    write_secret(tmp_path / "server.pem", authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    tls = rpc.server_tls(tmp_path / "server.pem")
    opened = open_engine(
        "memory:", *apps, network=Network(["127.0.0.1:0"], insecure=True, tls=tls), report=events.ignore
    )
    async with opened as engine:
        (tmp_path / "west.txt").write_text(engine.addresses[0])
        yield Terminal(engine.addresses[0], terminal.nursery)


TLS = ("--tls-authority", "authority.pem")


async def test_token_of_one_server_establishes_a_peering_of_another(
    headway: Terminal, west: Terminal, tmp_path: Path
) -> None:
    """The token alone is on stdout. Both servers list the peering, and `delete` waits for its partition to go."""
    exported = ("--export", "team", "--export", "bank.account:partition=default,namespace=a")
    made = await west(*TLS, "peer", "token", "west", *exported, "--authority", "authority.pem")
    assert (made.returncode, made.stderr) == (
        0,
        "peering west: give this token to `headway peer establish` within an hour\n",
    )
    assert read_token(made.stdout).addresses == ((tmp_path / "west.txt").read_text(),)

    done = await headway("peer", "establish", "east", "--export", "site-team", stdin=made.stdout)
    assert (done.returncode, done.stderr.splitlines()[-1][:26]) == (2, "Error: type 'site-team' no")
    done = await headway("peer", "establish", "east", "--export", "team", stdin=made.stdout)
    assert (done.returncode, done.stdout, done.stderr) == (0, "peering east with west established\n", "")

    listed = (await west(*TLS, "peer", "list")).stdout.splitlines()
    assert listed[0].split() == ["NAME", "ROLE", "STATE", "PEER", "EXPORTS", "PROBLEM"]
    assert [line.split("  ")[0] for line in listed[1:]] == ["west"]
    assert "Team, Account:partition=default,namespace=a" in listed[1]
    assert " dials " in (await headway("peer", "list")).stdout
    assert read_token(made.stdout).secret not in (await west(*TLS, "peer", "list", "-o", "json")).stdout

    done = await headway("peer", "delete", "east")
    assert (done.returncode, done.stdout) == (0, "peering east deleted\n")
    assert (await headway("peer", "list")).stderr == "no peering found\n"
    assert (await headway("get", "partition", "peer-east")).returncode == 3


async def test_peering_whose_other_side_is_gone_waits_for_it_unless_it_is_forced(
    headway: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = [f"unix:{tmp_path}/west.sock"]
    async with open_engine("memory:", *apps, network=Network(listen, insecure=True), report=events.ignore) as engine:
        token = await generate_token(engine.client, "west", plain_text=True)
        done = await headway("peer", "establish", "east", "--plain-text", stdin=token)
        assert done.returncode == 0, done.stderr
        await until(engine.client, PEERING, "west", lambda west: west is not None and state_of(west).value == "active")
    with monkeypatch.context() as patch:
        patch.setattr("headway.cli._peer._PATIENCE", 2.0)
        done = await headway("peer", "delete", "east")
    assert done.returncode == 6
    assert "is still being deleted: the other side does not know of the deletion yet: " in done.stderr
    assert "headway peer delete east --force" in (await headway("peer", "list")).stdout
    done = await headway("peer", "delete", "east", "--force")
    assert (done.returncode, done.stdout) == (0, "peering east deleted\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "said"),
    [
        (("establish", "east"), "", 2, "Error: no token on stdin: headway peer establish east < token"),
        (("establish", "east"), "nonsense\n", 1, "Error: the token is not valid base64 of JSON: copy all of it"),
        (("token", "East", "--address", "a:1"), "", 1, "Error: name 'East' is not a valid name"),
        (("token", "e" * 59, "--address", "a:1"), "", 1, "Error: name 'eeee"),
        (
            ("token", "east", "--export", "staff.site", "--address", "a:1"),
            "",
            1,
            "Error: exports[0].type staff.v1.",
        ),
        (
            ("token", "east", "--export", "team:zone=a"),
            "",
            2,
            "Error: --export 'team:zone=a': 'zone=a' is not partition=NAME",
        ),
        (("token", "east", "--export", "team:namespace="), "", 2, "Error: --export 'team:namespace=': 'namespace='"),
        (("token", "east"), "", 1, "Error: the engine listens without TLS: open it with tls="),
        (("delete", "east"), "", 3, "Error: Peering east not found"),
        (("delete", "East"), "", 2, "Error: peering.v1.Peering: name 'East' is not a valid name"),
    ],
)
async def test_wrong_argument_gets_an_error_and_changes_nothing(
    headway: Terminal, arguments: tuple[str, ...], stdin: str, code: int, said: str
) -> None:
    done = await headway("peer", *arguments, stdin=stdin)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(said)
    assert (await headway("peer", "list")).stderr == "no peering found\n"
