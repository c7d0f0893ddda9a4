"""`headway serve`."""

from pathlib import Path

import pytest

from tests.cli.conftest import CORE, Command, Started, address_of, interrupt


def test_serve_ends_cleanly_when_interrupted(start: Started) -> None:
    """Ctrl-C is how it is meant to end: exit code 0, nothing on stderr."""
    process = start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
    assert address_of(process).startswith("127.0.0.1:")

    assert interrupt(process) == (0, "", "")


def test_serve_keeps_what_a_store_has(start: Started, tmp_path: Path) -> None:
    """With sqlite: the next server of the same file has what was applied to the last."""
    arguments = ("serve", "tests.cli.served:app", "--store", "sqlite:staff.db", "--listen", "127.0.0.1:0")
    first = start(*arguments)
    applied = start("apply", "-f", "-", server=address_of(first))
    assert applied.communicate(CORE, timeout=30) == ("Team core created\n", "")
    interrupt(first)

    got = start("get", "team", "core", "-o", "yaml", server=address_of(start(*arguments)))
    assert got.communicate(timeout=30)[0] == CORE.replace("    rank: JUNIOR\n", "")
    assert (tmp_path / "staff.db").exists()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0"])
def test_serve_refuses_an_address_that_others_can_reach_without_tls(start: Started, address: str) -> None:
    """The message says what to do instead, --insecure too."""
    process = start("serve", "tests.cli.served:app", "--listen", address)

    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    assert f"--listen {address}: others can reach this address" in errors
    assert "--insecure" in errors


def test_serve_listens_anywhere_when_told_that_it_is_meant(start: Started) -> None:
    """With --insecure the address is taken."""
    process = start("serve", "tests.cli.served:app", "--listen", "0.0.0.0:0", "--insecure")

    assert address_of(process).startswith("0.0.0.0:")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("staff", "'staff' is no app; write module:attribute"),
        ("no_such.module:app", "there is no module 'no_such'"),
        ("tests.cli.served:ap", "tests.cli.served has no 'ap'"),
        ("tests.cli.served:TEAM", "it must be a headway.App, or a list of them"),
    ],
)
def test_serve_says_what_is_wrong_with_its_argument(start: Started, reference: str, said: str) -> None:
    """A wrong reference is wrong usage, in one sentence."""
    process = start("serve", reference)

    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert said in errors
    assert "Traceback" not in errors


def test_a_taken_address_is_said_in_one_line(start: Started, server: str, headway: Command) -> None:
    """It ends with 1 and the address, without a traceback."""
    process = start("serve", "tests.cli.served:app", "--listen", server)

    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert server.rpartition(":")[2] in errors
    assert headway("types").returncode == 0
