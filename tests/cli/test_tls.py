"""The command line over TLS."""

import re
import signal
import urllib.request
from pathlib import Path

import pytest
import trustme

from tests.cli.conftest import Started, address_of, announced
from tests.cli.terminal import Terminal, address
from tests.cli.test_serve_forward import run_command
from tests.helpers.secret_files import write_secret


@pytest.fixture
def certificates(tmp_path: Path) -> None:
    """Write an authority, and certificates for a server and a client with their keys in the same files."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    write_secret(tmp_path / "server.pem", authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    write_secret(tmp_path / "client.pem", authority.issue_cert("client").private_key_and_cert_chain_pem.bytes())


@pytest.mark.usefixtures("certificates")
async def test_server_with_a_certificate_is_trusted_by_its_authority(terminal: Terminal) -> None:
    """Clients without the authority or without TLS are refused, and the error names the right option."""
    options = ("--listen", "127.0.0.1:0", "--tls-certificate", "server.pem")
    server = await address(terminal.start("serve", "tests.cli.served:app", *options))

    known = await terminal("--tls-authority", "authority.pem", "types", server=server)
    assert (known.returncode, known.stderr) == (0, "")
    assert "staff.v1.Team" in known.stdout
    plain = await address(terminal.start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0"))
    for trust, asked, said in (
        (["--tls"], server, "give the authority's file with --tls-authority)"),
        ([], server, "it expects TLS: use --tls)"),
        (["--tls"], plain, "it does not speak TLS: leave --tls out)"),
    ):
        stranger = await terminal(*trust, "types", server=asked)
        assert (stranger.returncode, stranger.stdout) == (5, "")
        assert stranger.stderr.startswith(f"Error: no answer from {asked}: ")
        assert stranger.stderr.endswith(f"{said}\n")


@pytest.mark.usefixtures("certificates")
async def test_server_can_require_client_certificates(terminal: Terminal) -> None:
    """The options are --tls-client-authority of the server and --tls-certificate of the client."""
    options = ["--tls-certificate", "server.pem", "--tls-client-authority", "authority.pem"]
    serving = terminal.start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", *options)
    server = await address(serving)

    trust = ("--tls-authority", "authority.pem")
    known = await terminal(*trust, "--tls-certificate", "client.pem", "types", server=server)
    assert "staff.v1.Team" in known.stdout
    assert (await terminal(*trust, "types", server=server)).returncode == 5


async def test_invalid_tls_options_are_wrong_usage(terminal: Terminal, tmp_path: Path) -> None:
    """A key without a certificate and an invalid certificate are refused."""
    (tmp_path / "key.pem").write_text("no key")
    for options, said in (
        (["--tls-key", "key.pem"], "require --tls-certificate"),
        (["--tls-certificate", "key.pem"], "invalid TLS options"),
    ):
        done = await terminal("serve", "tests.cli.served:app", *options)
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.usefixtures("certificates")
def test_sighup_reloads_the_certificate(start: Started, tmp_path: Path) -> None:
    """A renewed certificate is used. An invalid one is reported, and the previous one stays in use."""
    options = ("--listen", "127.0.0.1:0", "--tls-certificate", "server.pem", "--metrics", "127.0.0.1:0")
    process = start("serve", "tests.cli.served:app", *options)
    server = address_of(process)
    assert process.stderr is not None
    metrics = announced(process, "metrics and health at ").split()[0].rstrip(",")

    def is_refused() -> bool:
        with urllib.request.urlopen(metrics) as page:
            [found] = re.findall(
                r'^headway_certificate_refused{certificate="server.pem"} (\S+)$', page.read().decode(), re.M
            )
        return bool(float(found))

    renewed = trustme.CA()
    renewed.cert_pem.write_to_path(str(tmp_path / "renewed.pem"))
    renewed.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    process.send_signal(signal.SIGHUP)
    assert process.stderr.readline() == "server.pem: reloaded\n"
    assert not is_refused()

    (tmp_path / "server.pem").write_text("no certificate")
    process.send_signal(signal.SIGHUP)
    lines = [process.stderr.readline(), process.stderr.readline()]
    assert "PEM" in lines[0]
    assert lines[1] == "server.pem: not reloaded; the previous content stays in effect\n"
    assert is_refused()
    assert run_command("--server", server, "--tls-authority", str(tmp_path / "renewed.pem"), "types")[0] == 0
