"""`headway serve --access`, the tokens of commands, and `headway token`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from headway.access import load_access, new_token
from tests.cli.conftest import CORE, Started, address_of, interrupt
from tests.cli.test_serve_forward import run_command
from tests.helpers.secret_files import write_secret

NO_TOKEN = "you have no token; give one with --token-file, HEADWAY_TOKEN or --token, or use headway login"
POLICIES = """\
policies:
  - name: readers
    rules:
      - {verbs: [view], type: staff.v1.Team, partition: "*", namespace: "*"}
  - name: writers
    rules:
      - {verbs: [view, edit], type: staff.v1.Team, partition: "*", namespace: "*"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.yaml"
    path.write_text(POLICIES)
    path.chmod(0o600)
    (tmp_path / "core.yaml").write_text(CORE)
    return path


def made(file: Path, *policies: str) -> str:
    """Create a token in the file and return its text."""
    code, out, errors = run_command("token", "new", *policies, "--into", str(file), "--description", "a test's")
    assert code == 0, errors
    return out.strip()


def serving(start: Started, file: Path, listen: str) -> tuple[subprocess.Popen[str], str]:
    process = start("serve", "tests.cli.served:app", "--access", str(file), "--listen", listen)
    return process, address_of(process).replace("0.0.0.0", "127.0.0.1")


@pytest.mark.wide
def test_commands_may_do_what_the_policies_of_their_token_allow(start: Started, file: Path, tmp_path: Path) -> None:
    """The token is in an option, the environment or a file. A public address without TLS causes a warning."""
    reader, writer = made(file, "readers"), made(file, "readers", "writers")
    process, server = serving(start, file, "0.0.0.0:0")
    write_secret(tmp_path / "token", f"{writer}\n")
    core = str(tmp_path / "core.yaml")
    at = ("--server", server)

    assert run_command(*at, "--token-file", str(tmp_path / "token"), "apply", "-f", core) == (
        0,
        "Team core created\n",
        "",
    )
    assert run_command(*at, "get", "team", "core", env={"HEADWAY_TOKEN": reader})[0] == 0
    code, out, _ = run_command(*at, "--token", reader, "types", env={"HEADWAY_TOKEN_FILE": str(tmp_path / "token")})
    assert (code, re.findall(r"^staff\.v1\.\w+", out, re.MULTILINE)) == (0, ["staff.v1.Team"])

    code, _, errors = run_command(*at, "--token", reader, "delete", "team", "core")
    assert code == 1
    assert errors.startswith(
        "Error: permission denied: you may not delete Team core: none of your rules covers all of it; ask for"
    )
    assert run_command(*at, "--token", reader, "list", "account")[0] == 2
    code, _, errors = run_command(*at, "types")
    assert (code, errors) == (1, f"Error: {server} shows you no types: {NO_TOKEN}\n")
    code, _, errors = run_command(*at, "--token", new_token([])[0], "types")
    assert code == 1
    assert errors.startswith(f"Error: {server} rejected this token: the token is not valid here")

    code, out, errors = interrupt(process)
    assert code == 0
    # At least one event of each kind was logged with the caller's name.
    for event in ("AuthenticationFailed", "CallDenied"):
        assert re.search(rf"{event} .*caller=", out), out
    assert reader.split("_")[1] in out
    assert "Warning: --listen 0.0.0.0:0: without --tls-certificate" in errors
    assert reader not in out + errors


def test_sighup_reloads_the_access_file(start: Started, file: Path) -> None:
    """A token that was added lets in, one that was left out doesn't, and a watch under it ends; a bad file changes
    nothing.
    """
    first = made(file, "readers")
    process, server = serving(start, file, "127.0.0.1:0")
    watch = start("--token", first, "watch", "team", server=server)
    assert process.stderr is not None
    kept = file.read_text()
    file.write_text(f"{kept}nonsense: 1\n")
    process.send_signal(signal.SIGHUP)
    problems = [process.stderr.readline(), process.stderr.readline()]
    assert "nonsense" in problems[0]
    assert problems[1] == f"{file}: not reloaded; the previous content stays in effect\n"
    assert run_command("--server", server, "--token", first, "types")[0] == 0

    file.write_text(POLICIES)
    second = made(file, "readers")
    process.send_signal(signal.SIGHUP)
    assert process.stderr.readline() == f"{file}: reloaded\n"
    assert run_command("--server", server, "--token", second, "types")[0] == 0
    assert run_command("--server", server, "--token", first, "types")[0] == 1
    _, errors = watch.communicate(timeout=30)
    assert (watch.returncode, "the token is not valid here" in errors) == (1, True)

    file.write_text(POLICIES.replace("readers", "anonymous").replace("[view]", "[read]"))
    process.send_signal(signal.SIGHUP)
    assert process.stderr.readline() == f"{file}: reloaded\n"
    code, _, errors = run_command("--server", server, "list", "team")
    assert code == 1
    assert errors.startswith(
        "Error: permission denied: you may not list staff.v1.Team there: none of your rules covers all of it"
    )
    assert errors.endswith(f"}}: {NO_TOKEN}\n")


def test_invalid_access_file_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lists all problems with their places. A file that other users can read is refused too."""
    monkeypatch.chdir(file.parent)
    serve = ("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", "--access", "access.yaml")
    file.write_text(POLICIES.replace("[view]", "[viw]"))
    code, _, errors = run_command(*serve)
    assert (code, errors.splitlines()[0].startswith("access.yaml:4:")) == (4, True)
    file.write_text(POLICIES)
    file.chmod(0o644)
    code, _, errors = run_command(*serve)
    assert (code, "chmod 600 access.yaml" in errors) == (4, True)


def test_new_token_is_printed_only_to_stdout(file: Path) -> None:
    """Its entry goes to stderr or into the file, and does not reveal the token."""
    code, out, errors = run_command("token", "new", "readers", "--expires-in", "90d")
    assert code == 0
    assert re.fullmatch(r"hw_[0-9a-f]{16}_[0-9a-f]{64}\n", out)
    assert 'policies: ["readers"]' in errors
    assert "expires_at: " in errors
    assert out.strip() not in errors

    text = made(file, "writers")
    assert text not in file.read_text()
    assert file.read_text().startswith(POLICIES)
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert [token.policies for token in load_access(file).tokens] == [("writers",)]
    assert os.listdir(file.parent).count("access.yaml") == len([n for n in os.listdir(file.parent) if "access" in n])


def test_token_that_cannot_be_created_leaves_the_file_unchanged(file: Path) -> None:
    """The error says why."""
    code, _, errors = run_command("token", "new", "reader", "--into", str(file))
    assert (code, errors) == (1, f"Error: {file}: policies: policy 'reader' not found; did you mean 'readers'?\n")
    assert run_command("token", "new", "readers", "--expires-in", "soon")[0] == 2
    assert run_command("token", "new", "No Name")[0] == 2
    file.write_text(f"tokens: []\n{POLICIES}")
    code, _, errors = run_command("token", "new", "readers", "--into", str(file))
    assert code == 1
    assert "add the entry by hand" in errors
    assert file.read_text() == f"tokens: []\n{POLICIES}"


@pytest.mark.parametrize("server", ["192.0.2.1:1", "127.0.0.1:1,192.0.2.1:1"])
def test_token_for_another_host_is_wrong_usage_without_tls(server: str) -> None:
    """This holds for an option, the environment and a file. The token is not in the error."""
    for options, env in ((["--token", "hw_a"], {}), ([], {"HEADWAY_TOKEN": "hw_a"})):
        code, _, errors = run_command("--server", server, *options, "types", env=env)
        assert (code, "hw_a" in errors) == (2, False)
        assert "--server 192.0.2.1:1: a token sent to another host over plain TCP" in errors
        assert "--tls, or --insecure" in errors


@pytest.mark.parametrize(
    ("options", "environment", "problem"),
    [
        (["--token", "a", "--token-file", "empty"], {}, "exclude each other"),
        ([], {"HEADWAY_TOKEN": "a", "HEADWAY_TOKEN_FILE": "empty"}, "exclude each other"),
        (["--token-file", "empty"], {}, "--token-file empty is empty"),
        (["--token-file", "empty"], {"HEADWAY_TOKEN": "a"}, "--token-file empty is empty"),
        (["--token", "hw_é"], {}, "invalid token"),
        (["--token-file", "two"], {}, "invalid token"),
        (["--token-file", "shared"], {}, "--token-file: shared holds a secret and has mode 0644"),
        ([], {"HEADWAY_TOKEN_FILE": "shared"}, "chmod 600 shared"),
    ],
)
def test_invalid_token_is_wrong_usage(
    options: list[str],
    environment: dict[str, str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused before the server is called. The error doesn't repeat it, since it may be nearly right."""
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (("empty", "\n", 0o600), ("two", "hw_one\nhw_two\n", 0o600), ("shared", "hw_one\n", 0o644)):
        write_secret(tmp_path / name, text, mode)

    code, _, errors = run_command("--server", "127.0.0.1:1", *options, "types", env=environment)
    assert code == 2
    assert problem in errors
    assert "hw_" not in errors
