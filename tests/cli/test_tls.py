"""The command line over TLS."""

from pathlib import Path

import pytest
import trustme

from tests.cli.conftest import Started, address_of


@pytest.fixture
def certificates(tmp_path: Path) -> None:
    """An authority, and a server's and a client's certificate of it, with their keys in the same files."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))


@pytest.mark.usefixtures("certificates")
def test_a_server_with_a_certificate_is_believed_by_who_knows_its_authority(start: Started) -> None:
    """By nobody else: neither without its authority nor without TLS."""
    serving = start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", "--tls-certificate", "server.pem")
    address = address_of(serving)

    known = start("--tls-authority", "authority.pem", "types", server=address)
    out, errors = known.communicate(timeout=30)
    assert (known.returncode, errors) == (0, "")
    assert "staff.v1.Team" in out
    for options in (["--tls"], []):
        stranger = start(*options, "types", server=address)
        out, errors = stranger.communicate(timeout=30)
        assert (stranger.returncode, out) == (5, "")
        assert errors.startswith(f"Error: no answer from {address}: ")


@pytest.mark.usefixtures("certificates")
def test_a_server_that_asks_for_certificates_serves_nobody_without_one(start: Started) -> None:
    """--tls-client-authority at the server, --tls-certificate at the client."""
    options = ["--tls-certificate", "server.pem", "--tls-client-authority", "authority.pem"]
    address = address_of(start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", *options))

    known = start("--tls-authority", "authority.pem", "--tls-certificate", "client.pem", "types", server=address)
    assert "staff.v1.Team" in known.communicate(timeout=30)[0]
    stranger = start("--tls-authority", "authority.pem", "types", server=address)
    stranger.communicate(timeout=30)
    assert stranger.returncode == 5


def test_tls_options_that_go_with_none_are_wrong_usage(start: Started, tmp_path: Path) -> None:
    """A key without a certificate protects nothing; a file that is no certificate is said."""
    (tmp_path / "key.pem").write_text("no key")
    for options, said in (
        (["--tls-key", "key.pem"], "go with --tls-certificate"),
        (["--tls-certificate", "key.pem"], "the TLS options can't be used"),
    ):
        process = start("serve", "tests.cli.served:app", *options)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 2
        assert said in errors
