"""`headway serve --forward`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli import main
from tests.cli.conftest import CORE, Started, address_of, interrupt


def run_command(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command in this process, and return its exit code and output."""
    done = CliRunner().invoke(main, [*arguments], env=env, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.wide
def test_forwarder_serves_what_its_upstream_serves(start: Started, tmp_path: Path) -> None:
    """All commands work through it. It needs no app, and Ctrl-C ends it cleanly."""
    server = address_of(start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0"))
    forwarder = start("serve", "--forward", "127.0.0.1:1", "--forward", server, "--listen", "127.0.0.1:0")
    through = ("--server", address_of(forwarder))
    (tmp_path / "core.yaml").write_text(CORE)

    assert run_command(*through, "apply", "-f", str(tmp_path / "core.yaml")) == (0, "Team core created\n", "")
    assert run_command(*through, "wait", "team", "core", "--for", "Staffed")[0] == 0
    assert run_command("--server", server, "get", "team", "core", "-o", "yaml")[0] == 0
    assert run_command(*through, "get", "team", "nobody")[0] == 3
    assert interrupt(forwarder) == (0, "", "")


def test_unreachable_upstream_is_named(start: Started) -> None:
    """The command ends with 5, as without a forwarder."""
    forwarder = start("serve", "--forward", "127.0.0.1:1", "--listen", "127.0.0.1:0")

    code, _, errors = run_command("--server", address_of(forwarder), "types")
    assert code == 5
    assert "no server can be reached (127.0.0.1:1: " in errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give an APP (module:attribute) to run, or --forward ADDRESS of a server: "),
        (["tests.cli.served:app", "--forward", "127.0.0.1:1"], "one of the two, not both"),
        (["--forward", "nowhere"], "--forward: 'nowhere' is not an address"),
        (["--forward", "127.0.0.1:1", "--store", "sqlite:x.db"], "--store requires an APP"),
        (["--forward", "127.0.0.1:1", "--metrics", "127.0.0.1:0"], "--metrics requires an APP"),
        (["--forward", "127.0.0.1:1", "--access", "file"], "--access requires an APP"),
        (["--forward", "127.0.0.1:1", "--forward-tls-key", "file"], "--forward-tls-key requires --forward-tls-cert"),
        (["--forward", "127.0.0.1:1", "--forward-tls-authority", "file"], "invalid TLS options of --forward"),
        (["--forward", "127.0.0.1:1", "--listen", "0.0.0.0:0"], "others can reach this address"),
        (["tests.cli.served:app", "--forward-tls"], "--forward-tls requires --forward"),
        (["tests.cli.served:app", "--forward-insecure"], "--forward-insecure requires --forward"),
        (["tests.cli.served:app", "--access", "file", "--insecure"], "give one of them"),
    ],
)
def test_contradicting_options_are_wrong_usage(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which option each of them requires."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("nothing")

    code, _, errors = run_command("serve", *arguments)
    assert code == 2
    assert problem in errors.replace("\n", " ")
    # The error doesn't recommend options that a forwarder lacks.
    assert "--listen 0.0.0.0" not in errors or "--access" not in errors
