"""A certificate that is renewed on disk is served without a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trustme

from headway import rpc
from headway.errors import HeadwayError
from headway.events import CertificateRefused, CertificateRenewed
from headway.rpc import _tls
from tests.helpers.secret_files import write_secret
from tests.rpc.rpc_kit import ECHO, Text, served


class Pair:
    """A certificate and its key in two files, and authorities that are renewed with them."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.ca = folder / "server.pem", folder / "server.key", folder / "ca.pem"
        self.renew()

    def renew(self, *, certificate: bool = True, key: bool = True) -> None:
        """Write a pair issued by a new authority, or half of it."""
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(self.ca))
        self._issued = self.authority.issue_cert("127.0.0.1")
        self.write(certificate=certificate, key=key)

    def write(self, *, certificate: bool = True, key: bool = True) -> None:
        if certificate:
            self.certificate.write_bytes(b"".join(each.bytes() for each in self._issued.cert_chain_pems))
        if key:
            write_secret(self.key, self._issued.private_key_pem.bytes())


async def _call(where: str, pair: Pair, **client: Path) -> None:
    async with rpc.open_channel(where, tls=rpc.client_tls(pair.ca, **client)) as channel:
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(_tls, "_LOOK", 0.0)
    return Pair(tmp_path)


async def test_renewed_certificate_is_served_to_the_next_client(pair: Pair) -> None:
    """Clients that are connected stay connected."""
    reported: list[object] = []
    tls = rpc.server_tls(pair.certificate, pair.key)
    async with (
        served(tls=tls, notify=reported.append) as it,
        rpc.open_channel(it.where, tls=rpc.client_tls(pair.ca)) as old,
    ):
        await old.unary(ECHO, Text(), Text)
        assert reported == []
        pair.renew()
        await _call(it.where, pair)
        await old.unary(ECHO, Text(), Text)
        assert it.server.connections >= 1
        await _call(it.where, pair)
    assert reported == [CertificateRenewed(str(pair.certificate))]


async def test_certificate_without_its_key_is_ignored_until_the_key_arrives(pair: Pair) -> None:
    """It is reported once. The pair is served when the key has been written."""
    reported: list[object] = []
    async with served(tls=rpc.server_tls(pair.certificate, pair.key), notify=reported.append) as it:
        authority = pair.ca.read_bytes()
        pair.renew(key=False)
        renewed = pair.ca.read_bytes()
        for _ in range(3):
            pair.ca.write_bytes(authority)
            await _call(it.where, pair)
        [refused] = reported
        assert isinstance(refused, CertificateRefused)
        assert "is not the key of the certificate in" in str(refused.error)
        pair.write(certificate=False)
        pair.ca.write_bytes(renewed)
        await _call(it.where, pair)
    assert reported[1:] == [CertificateRenewed(str(pair.certificate))]


async def test_missing_certificate_file_keeps_the_old_certificate(pair: Pair) -> None:
    reported: list[object] = []
    async with served(tls=rpc.server_tls(pair.certificate, pair.key), notify=reported.append) as it:
        pair.key.unlink()
        await _call(it.where, pair)
        await _call(it.where, pair)
        assert [type(event) for event in reported] == [CertificateRefused]


async def test_renewed_client_authorities_apply_to_the_next_client(pair: Pair, tmp_path: Path) -> None:
    """A certificate of the old authority is then refused."""
    client = tmp_path / "client.pem"
    write_secret(client, pair.authority.issue_cert("a-client").private_key_and_cert_chain_pem.bytes())
    async with served(tls=rpc.server_tls(pair.certificate, pair.key, client_ca=pair.ca)) as it:
        await _call(it.where, pair, certificate=client)
        pair.renew()
        with pytest.raises(HeadwayError):
            await _call(it.where, pair, certificate=client)
        write_secret(client, pair.authority.issue_cert("a-client").private_key_and_cert_chain_pem.bytes())
        await _call(it.where, pair, certificate=client)


async def test_certificate_files_are_checked_once_a_second(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of connections doesn't matter."""
    monkeypatch.setattr(_tls, "_LOOK", 1000.0)
    tls = rpc.server_tls(pair.certificate, pair.key)
    pair.renew()
    assert not tls.follow()
    assert tls.current is tls
    tls.renew()
    assert tls.current is not tls
    await trio.lowlevel.checkpoint()


async def test_certificate_that_is_rewritten_with_equal_size_and_time_is_served(pair: Pair) -> None:
    """Some tools keep the time of a file, and two writes can fall into one tick of the file system's clock."""
    tls = rpc.server_tls(pair.certificate, pair.key)
    before, times = pair.certificate.read_bytes(), pair.certificate.stat()
    async with served(tls=tls) as it:
        await _call(it.where, pair)
        pair.renew()
        size = max(len(before), pair.certificate.stat().st_size)
        pair.certificate.write_bytes(pair.certificate.read_bytes().ljust(size, b"\n"))
        os.utime(pair.certificate, ns=(times.st_atime_ns, times.st_mtime_ns))
        await _call(it.where, pair)
