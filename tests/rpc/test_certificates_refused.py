"""A server certificate that a client rejects, and a client without one: the error names cause, place and remedy."""

from __future__ import annotations

import datetime
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

import headway
from headway import events, rpc
from headway.rpc.client import certificate_refused
from tests.helpers.secret_files import write_secret
from tests.test_wrong_server import app, types

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


def signed(authority: trustme.CA, name: str = "127.0.0.1", **options: Any) -> trustme.LeafCert:
    return authority.issue_cert(name, **options)


WRONG: dict[str, tuple[Callable[[trustme.CA], trustme.LeafCert], str]] = {
    "another authority": (
        lambda _: signed(trustme.CA()),
        r"signed by an authority that is not trusted here .*client_tls\(",
    ),
    "another name": (
        lambda trusted: signed(trusted, "example.org"),
        r"is for another name \(.*127\.0\.0\.1'\): use one of its names .* server_name=",
    ),
    "expired": (
        lambda trusted: signed(trusted, not_before=NOW - 2 * DAY, not_after=NOW - DAY),
        "has expired: renew the server's certificate",
    ),
}


async def first_error(where: str, tls: ssl.SSLContext) -> str:
    """Return the first error that a worker of this address reports."""
    errors: list[str] = []
    reported = trio.Event()

    def report(event: object) -> None:
        if isinstance(event, events.LeaseDelayed):
            errors.append(str(event.error))
            reported.set()

    with trio.fail_after(20):
        async with headway.open_workers(where, app(), process="web-1", tls=tls, report=report):
            await reported.wait()
    assert where in errors[0]
    return errors[0]


@pytest.mark.parametrize("name", WRONG)
async def test_worker_reports_why_it_rejects_the_certificate_of_its_server(tmp_path: Path, name: str) -> None:
    """The worker tries again, because a certificate may be renewed."""
    made, said = WRONG[name]
    trusted = trustme.CA()
    trusted.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    write_secret(tmp_path / "server.pem", made(trusted).private_key_and_cert_chain_pem.bytes())
    tls = rpc.server_tls(tmp_path / "server.pem")
    async with headway.open_engine(
        "memory:", types(), network=headway.Network(["127.0.0.1:0"], insecure=True, tls=tls)
    ) as engine:
        error = await first_error(engine.addresses[0], rpc.client_tls(tmp_path / "ca.pem"))
    assert re.search(said, error), error
    assert "_ssl.c" not in error


async def test_worker_without_a_certificate_reports_that_the_server_may_require_one(tmp_path: Path) -> None:
    """The server closes the connection without a reason that TLS would show."""
    trusted = trustme.CA()
    trusted.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    write_secret(tmp_path / "server.pem", signed(trusted).private_key_and_cert_chain_pem.bytes())
    tls = rpc.server_tls(tmp_path / "server.pem", client_ca=tmp_path / "ca.pem")
    async with headway.open_engine(
        "memory:", types(), network=headway.Network(["127.0.0.1:0"], insecure=True, tls=tls)
    ) as engine:
        error = await first_error(engine.addresses[0], rpc.client_tls(tmp_path / "ca.pem"))
    assert "if it asks for a client's certificate, give one with" in error


def test_other_tls_errors_keep_the_words_of_the_library() -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = 24, "invalid CA certificate"
    obstacle = certificate_refused(error)
    assert obstacle is not None
    assert obstacle.reason == (
        "its certificate is not valid here (invalid CA certificate): replace the server's certificate"
    )
    error.verify_code = 9
    assert "compare the clocks" in str(certificate_refused(error))
    assert certificate_refused(ssl.SSLError("another")) is None
