"""`headway serve --access` with issuers of logins, commands with a JWT, and `headway token check`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from headway.access import add_token as add
from headway.access import new_token
from tests.access.logins import ISS, KEYS
from tests.cli.conftest import CORE, Started, address_of, interrupt
from tests.cli.test_serve_forward import run_command
from tests.helpers.login_issuer import RSA_KEY, claims, jwks, public_jwk, signed
from tests.helpers.secret_files import write_secret

ACCESS = """\
policies:
  - name: writers
    rules:
      - {verbs: [view, edit], type: staff.v1.Team, partition: "*", namespace: "*"}
issuers:
  - name: corp
    issuer: https://login.example.com
    audiences: [headway]
    jwks_file: keys.json
    bindings:
      - {claims: {groups: ops}, policies: [writers]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.yaml"
    write_secret(path, ACCESS)
    (tmp_path / "keys.json").write_text(KEYS)
    (tmp_path / "keys.json").chmod(0o644)
    (tmp_path / "core.yaml").write_text(CORE)
    return path


def jwt(iss: str = ISS, kid: str = "a", **changes: object) -> str:
    return signed({"alg": "RS256", "kid": kid}, claims(iss, **changes))


def checked(file: Path, text: str) -> tuple[int, str, str]:
    write_secret(file.parent / "checked", text + "\n")
    return run_command("token", "check", str(file.parent / "checked"), "--access", str(file))


def test_check_shows_what_a_login_is(file: Path) -> None:
    """The caller, the policies and the time that is left; of a token, too."""
    code, out, errors = checked(file, jwt())

    assert (code, errors) == (0, "")
    assert out.startswith("caller    corp/ada\npolicies  writers\nexpires   in 3,6")
    text, token = new_token(["writers"], description="a job")
    add(file, token)
    out = checked(file, text)[1]
    assert out == f"caller    {token.accessor} (a job)\npolicies  writers\nexpires   never\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (jwt(exp=1), "corp: it has expired"),
        (jwt(groups=["guests"]), "corp: no binding of its issuer matches its claims"),
        (jwt(iss=f"{ISS}/"), "its issuer 'https://login.example.com/' is not in the access file"),
        (jwt(kid="z"), "corp: its issuer has no key 'z'"),
        ("hw_nothing", "token not found"),
    ],
)
def test_check_shows_why_a_token_is_refused(text: str, why: str, file: Path) -> None:
    """The answer of the server would say none of this."""
    assert checked(file, text) == (1, "", f"Error: refused: {why}\n")


@pytest.mark.wide
def test_commands_work_with_a_login_and_sighup_reads_new_bindings(start: Started, file: Path, tmp_path: Path) -> None:
    """A JWT in a file or in the environment is a token like any other. The log says why one is refused."""
    process = start("serve", "tests.cli.served:app", "--access", str(file), "--listen", "127.0.0.1:0")
    server = address_of(process)
    write_secret(tmp_path / "token", jwt())
    core = str(tmp_path / "core.yaml")

    code, out, errors = run_command("--server", server, "--token-file", str(tmp_path / "token"), "apply", "-f", core)
    assert (code, out, errors) == (0, "Team core created\n", "")
    assert run_command("--server", server, "get", "team", "core", env={"HEADWAY_TOKEN": jwt()})[0] == 0
    other = ed25519.Ed25519PrivateKey.generate()
    stranger = signed({"alg": "EdDSA", "kid": "z"}, claims(ISS), other)
    code, _, errors = run_command("--server", server, "--token", stranger, "get", "team", "core")
    assert (code, "may be mistyped, expired or revoked" in errors) == (1, True)

    write_secret(file, ACCESS.replace("groups: ops", "groups: admins"))
    (tmp_path / "keys.json").write_text(jwks(public_jwk(RSA_KEY, kid="a")))
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    assert process.stderr.readline() == f"{file}: reloaded\n"
    assert run_command("--server", server, "get", "team", "core", env={"HEADWAY_TOKEN": jwt()})[0] == 1
    assert run_command("--server", server, "get", "team", "core", env={"HEADWAY_TOKEN": jwt(groups="admins")})[0] == 0
    code, log, _ = interrupt(process)
    assert (code, "corp: its issuer has no key" in log) == (0, True)
    assert stranger not in log
