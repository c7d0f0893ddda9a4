"""Tokens, passwords and keys in files are refused when other users can read or replace them."""

import os
import stat
from pathlib import Path

import pytest
import trustme

from headway.base import check_secret, create_private, exposure, read_secret
from headway.errors import StoreUnusable
from headway.rpc import client_tls, server_tls
from headway.storage import etcd_address

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")

ME, SOMEBODY, ROOT = 1000, 1001, 0
READABLE, CHANGEABLE, FOREIGN = "can read it", "can change it", "belongs to user 1001"


def status(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "mode", "problem"),
    [
        (ME, 0o600, None),
        (ME, 0o400, None),
        (ME, 0o640, READABLE),
        (ME, 0o604, READABLE),
        (ME, 0o620, CHANGEABLE),
        # Debian's ssl-cert group, and secrets that Kubernetes mounts with an fsGroup.
        (ROOT, 0o640, None),
        (ROOT, 0o440, None),
        (ROOT, 0o644, READABLE),
        (ROOT, 0o660, CHANGEABLE),
        (SOMEBODY, 0o600, FOREIGN),
        (SOMEBODY, 0o640, FOREIGN),
    ],
)
def test_secret_is_refused_by_mode_and_owner(owner: int, mode: int, problem: str | None) -> None:
    """Only root or this user may own a secret. No other user may read it, except for the group of one of root."""
    found = exposure(status(stat.S_IFREG | mode, owner), ME)
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_pipe_and_terminal_are_accepted() -> None:
    """`--token-file <(pass show headway)` works."""
    for kind in (stat.S_IFIFO, stat.S_IFCHR):
        assert exposure(status(kind | 0o666, SOMEBODY), ME) is None


def secret(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_secret_behind_links_is_checked_by_its_file(tmp_path: Path) -> None:
    """Kubernetes mounts name -> ..data/name and ..data -> ..2026_11_22/. A link's own mode is 0777."""
    (tmp_path / "..2026").mkdir()
    file = secret(tmp_path / "..2026" / "token", b"hw_a_b")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "token").symlink_to("..data/token")
    assert read_secret(tmp_path / "token") == "hw_a_b"
    file.chmod(0o644)
    with pytest.raises(PermissionError, match=f"has mode 0644, .* chmod 600 {tmp_path}/token"):
        read_secret(tmp_path / "token")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other users")
def test_secret_of_another_user_is_refused_even_by_root(tmp_path: Path) -> None:
    """The owner of the file could replace the secret."""
    file = secret(tmp_path / "token", b"hw_a_b")
    os.chown(file, SOMEBODY, -1)
    with pytest.raises(PermissionError, match=f"belongs to user 1001, .*: chown 0 {file}"):
        check_secret(file)


def test_readable_key_is_refused_by_both_sides_of_tls(tmp_path: Path) -> None:
    """The key may be in its own file or follow the certificate. A certificate alone may be public."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    certificate = secret(tmp_path / "cert.pem", issued.cert_chain_pems[0].bytes(), 0o644)
    key = secret(tmp_path / "key.pem", issued.private_key_pem.bytes())
    both = secret(tmp_path / "both.pem", issued.private_key_and_cert_chain_pem.bytes())
    server_tls(certificate, key), server_tls(both)
    client_tls(certificate=certificate, key=key), client_tls(certificate=both)
    for exposed in (key, both):
        exposed.chmod(0o644)
        given = (certificate, key) if exposed is key else (both, None)
        with pytest.raises(PermissionError, match=f"chmod 600 {exposed}"):
            server_tls(*given)
        with pytest.raises(PermissionError, match=f"chmod 600 {exposed}"):
            client_tls(certificate=given[0], key=given[1])


def test_readable_password_file_of_etcd_is_refused(tmp_path: Path) -> None:
    """The error does not contain the password."""
    file = secret(tmp_path / "password", b"correct horse\n")
    where = etcd_address(f"etcd://ada@127.0.0.1:2379/staff?password_file={file}")
    assert where.secret() == "correct horse"
    file.chmod(0o640 if os.geteuid() else 0o604)
    with pytest.raises(StoreUnusable, match="chmod 600") as caught:
        where.secret()
    assert "horse" not in str(caught.value)


def test_created_file_is_new_and_private_to_its_owner(tmp_path: Path) -> None:
    """The umask has no effect, and a dangling link counts as an existing file."""
    before = os.umask(0o777)
    try:
        os.close(create_private(str(tmp_path / "new")))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    for there in ("new", "link"):
        with pytest.raises(FileExistsError):
            create_private(str(tmp_path / there))
