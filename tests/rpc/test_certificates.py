"""What is wrong with files of certificates, in words: no error shows OpenSSL's own text."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from headway import rpc
from headway.rpc._tls import validity_problem
from tests.helpers.secret_files import write_secret

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("127.0.0.1")
CERTIFICATE = ISSUED.cert_chain_pems[0].bytes()
KEY = ISSUED.private_key_pem.bytes()
ENCRYPTED = load_pem_private_key(KEY, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)
OTHER_KEY = AUTHORITY.issue_cert("127.0.0.1").private_key_pem.bytes()
DAMAGED = CERTIFICATE[:100] + b"AAAA" + CERTIFICATE[104:]

WRONG: dict[str, tuple[bytes, bytes, str, str]] = {
    "no certificate": (b"hello", KEY, "server.pem", "no certificate in PEM form: the file must have -----BEGIN CERT"),
    "an empty file": (b"", KEY, "server.pem", "no certificate in PEM form"),
    "a key for a certificate": (KEY, KEY, "server.pem", "no certificate in PEM form"),
    "a certificate that is cut off": (
        CERTIFICATE[:200],
        KEY,
        "server.pem",
        "the file is cut off: -----END",
    ),
    "a damaged certificate": (DAMAGED, KEY, "server.pem", "its certificate is damaged: it cannot be decoded"),
    "no key": (
        CERTIFICATE,
        CERTIFICATE,
        "server.key",
        "no private key in PEM form: the file must have",
    ),
    "a damaged key": (CERTIFICATE, KEY[:60] + b"!" + KEY[61:], "server.key", "its private key is damaged"),
    "another key": (
        CERTIFICATE,
        OTHER_KEY,
        "server.key",
        "is not the key of the certificate",
    ),
}


def _written(folder: Path, certificate: bytes, key: bytes) -> tuple[Path, Path]:
    write_secret(folder / "server.key", key)
    (folder / "server.pem").write_bytes(certificate)
    return folder / "server.pem", folder / "server.key"


@pytest.mark.parametrize("name", WRONG)
def test_unusable_files_of_a_server_are_explained(name: str, tmp_path: Path) -> None:
    """The same holds for a client's certificate, and for files that are renewed."""
    certificate, key, file, why = WRONG[name]
    usable = rpc.server_tls(*_written(tmp_path, CERTIFICATE, KEY))
    pem, secret = _written(tmp_path, certificate, key)
    for use in (
        lambda: rpc.server_tls(pem, secret),
        lambda: rpc.client_tls(certificate=pem, key=secret),
        usable.renew,
    ):
        with pytest.raises(OSError, match=re.escape(why)) as refused:
            use()
        said = str(refused.value)
        assert str(tmp_path / file) in said
        assert "_ssl.c" not in said


def test_encrypted_key_of_a_renewed_certificate_is_explained(tmp_path: Path) -> None:
    """At the start, OpenSSL asks for its password."""
    tls = rpc.server_tls(*_written(tmp_path, CERTIFICATE, KEY))
    _written(tmp_path, CERTIFICATE, ENCRYPTED)
    with pytest.raises(OSError, match=r"server\.key: its private key is encrypted: decrypt it, as with `openssl pkey"):
        tls.renew()


@pytest.mark.parametrize("file", ["server.pem", "server.key", "ca.pem"])
def test_renewal_by_a_pipe_is_refused_instead_of_blocking(tmp_path: Path, file: str) -> None:
    pem, secret = _written(tmp_path, CERTIFICATE, KEY)
    (tmp_path / "ca.pem").write_bytes(pem.read_bytes())
    tls = rpc.server_tls(pem, secret, client_ca=tmp_path / "ca.pem")
    before = tls.current
    (tmp_path / file).unlink()
    os.mkfifo(tmp_path / file, 0o600)
    with pytest.raises(OSError, match=rf"{file} is a pipe, .* and reading it could block the process"):
        tls.renew()
    assert tls.current is before


def test_renewed_files_are_found_after_the_program_has_changed_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are relative to the directory at the start, and are shown as they were given."""
    certificate, key = _written(tmp_path, CERTIFICATE, KEY)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    tls = rpc.server_tls(certificate.name, key.name, client_ca=certificate.name)
    before = tls.current
    monkeypatch.chdir("elsewhere")
    tls.renew()
    assert tls.current is not before
    http = tls.speaking("http/1.1")
    assert (tls.certificate, http.certificate) == (certificate.name, certificate.name)


def test_missing_files_are_named(tmp_path: Path) -> None:
    pem, secret = _written(tmp_path, CERTIFICATE, KEY)
    tls = rpc.server_tls(pem, secret, client_ca=pem)
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*none\.pem'"):
        rpc.client_tls(tmp_path / "none.pem")
    pem.unlink()
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*server\.pem'"):
        tls.renew()


AUTHORITIES: dict[str, Callable[[Path, Path], object]] = {
    "of a server's clients": lambda server, ca: rpc.server_tls(server, client_ca=ca),
    "of a client's servers": lambda _, ca: rpc.client_tls(ca),
    "in a text": lambda _, ca: rpc.client_tls_of_text(ca.read_text()),
}


@pytest.mark.parametrize("name", AUTHORITIES)
def test_unusable_authority_is_explained(name: str, tmp_path: Path) -> None:
    server, ca = tmp_path / "server.pem", tmp_path / "ca.pem"
    write_secret(server, CERTIFICATE + KEY)
    for content, why in ((b"hello", "no certificate in PEM form"), (DAMAGED, "its certificate is damaged")):
        ca.write_bytes(content)
        with pytest.raises(OSError, match=why) as refused:
            AUTHORITIES[name](server, ca)
        assert "_ssl.c" not in str(refused.value)


def test_certificate_that_clients_refuse_is_known() -> None:
    """The text is found behind a key, too. RFC 5280 has two forms of times: the other is for years from 2050 on."""
    since, until = NOW - DAY, NOW + DAY
    text = (KEY + AUTHORITY.issue_cert("a", not_before=since, not_after=until).cert_chain_pems[0].bytes()).decode()
    assert validity_problem(text, NOW) is None
    assert validity_problem(text, until) is None
    late = validity_problem(text, until + datetime.timedelta(seconds=1))
    assert late == f"its certificate expired on {until:%Y-%m-%d %H:%M} UTC, so clients refuse it: renew it"
    early = validity_problem(text, since - datetime.timedelta(seconds=1))
    assert early == f"its certificate is valid only from {since:%Y-%m-%d %H:%M} UTC on, so clients refuse it until then"
    far = datetime.datetime(2060, 1, 2, tzinfo=datetime.UTC)
    lasting = AUTHORITY.issue_cert("a", not_after=far).cert_chain_pems[0].bytes().decode()
    assert validity_problem(lasting, far) is None
    assert "expired on 2060-01-02" in str(validity_problem(lasting, far + DAY))


@pytest.mark.parametrize("text", ["", "hello", DAMAGED.decode(), CERTIFICATE[:200].decode()])
def test_validity_of_what_is_no_certificate_is_unknown(text: str) -> None:
    validity_problem(text, NOW + 10_000 * DAY)
