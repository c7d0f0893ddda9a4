"""Addresses of stores in etcd: their parts, and the errors that name the wrong part."""

from pathlib import Path

import pytest

from headway.errors import InvalidArgument, StoreUnusable
from headway.rpc import Address
from headway.storage import EtcdBackend, check_store, etcd_address, open_store, store_exists
from tests.helpers.secret_files import write_secret


def test_address_has_members_and_a_prefix() -> None:
    read = etcd_address("etcd://10.0.0.1:2379,[::1]:2380,host:1/a/b/")
    assert read.endpoints == (Address("10.0.0.1", 2379, ""), Address("::1", 2380, ""), Address("host", 1, ""))
    assert read.prefix == "/a/b"
    assert not read.tls
    assert (read.user, read.secret()) == ("", "")
    assert isinstance(open_store("etcd://10.0.0.1:2379/a"), EtcdBackend)


def test_options_configure_the_connection(tmp_path: Path) -> None:
    write_secret(tmp_path / "password", "s3cret\n")
    read = etcd_address(
        f"etcd://r%40t@h:1/p?ca=/ca.pem&certificate=/c&key=/k&server_name=n&password_file={tmp_path}/password"
    )
    assert (read.tls, read.ca, read.certificate, read.key, read.server_name) == (True, "/ca.pem", "/c", "/k", "n")
    assert (read.user, read.secret()) == ("r@t", "s3cret")
    assert etcd_address("etcd://h:1/p?tls=1").tls
    kept = etcd_address("etcd://h:1/p?max_changes=5&max_age=2.5&max_bytes=7")
    assert (kept.max_changes, kept.max_age, kept.max_bytes, kept.tls) == (5, 2.5, 7, False)
    assert not etcd_address("etcd://h:1/p?tls=0").tls
    with pytest.raises(StoreUnusable, match="password_file '/nowhere'"):
        etcd_address("etcd://r@h:1/p?password_file=/nowhere").secret()


def test_password_is_never_shown() -> None:
    read = etcd_address("etcd://root:s3cret@h:1/p")
    assert "s3cret" not in str(read) + repr(read)
    with pytest.raises(InvalidArgument, match="root:…@h") as error:
        etcd_address("etcd://root:s3cret@h:1/")
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "etcds://root:s3cret@h:1/p",
        " etcd://root:s3cret@h:1/p",
        "etcd:/root:s3cret@h:1/p",
        "etcd:root:s3cret@h:1/p",
        "etcd://root:s3cret/s3cret@h:1/p",
        "etcd://root:s3cret?s3cret@h:1/p",
        "etcd://root:s3cret?s3cret/s3cret@h:1/p",
        "etcd://root:s3c@s3cret@h:1/",
    ],
)
async def test_password_in_an_invalid_url_is_never_shown(url: str) -> None:
    """A URL with a typing error, or a password that should have been encoded, must not bring it into a log."""
    for refuse in (open_store, etcd_address):
        with pytest.raises(InvalidArgument, match="@h:1/") as error:
            refuse(url)
        assert "s3c" not in str(error.value)
        assert error.value.__cause__ is None
    for refuse_later in (store_exists, check_store):
        with pytest.raises(InvalidArgument, match="@h:1/") as error:
            await refuse_later(url)
        assert "s3c" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("etcd:h:1/p", "is not an etcd URL"),
        ("http://h:1/p", "is not an etcd URL"),
        ("etcd:///p", "has no host"),
        ("etcd://h/p", "'h' is not an address"),
        ("etcd://h:1,/p", "'' is not an address"),
        ("etcd://h:1,h:70000/p", "'h:70000' is not an address"),
        ("etcd://h:1,h:1/p", "repeats a host"),
        ("etcd://h:1", "the prefix '/'"),
        ("etcd://h:1/", "the prefix '/'"),
        ("etcd://h:1/a//b", "the prefix '/a//b'"),
        ("etcd://@h:1/p", "the user before @"),
        ("etcd://:x@h:1/p", "the user before @"),
        ("etcd://h:1/p?port=1", "option 'port'"),
        ("etcd://h:1/p?ca=", "option 'ca'"),
        ("etcd://h:1/p?tls=yes", "option 'tls'"),
        ("etcd://h:1/p?max_changes=0", "'max_changes'"),
        ("etcd://h:1/p?max_changes=1.5", "whole number"),
        ("etcd://h:1/p?max_age=nan", "'max_age'"),
        ("etcd://h:1/p?max_bytes=0", "'max_bytes'"),
        ("etcd://h:1/p?tls=0&ca=/x", "tls=0 contradicts"),
        ("etcd://h:1/p?ca=/x&ca=/y", "duplicate option"),
        ("etcd://h:1/p?key=/k", "'key'"),
        ("etcd://h:1/p?password_file=/x", "password_file"),
        ("etcd://u:p@h:1/p?password_file=/x", "password_file"),
    ],
)
def test_error_names_the_wrong_part(url: str, names: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        etcd_address(url)
    assert names in str(error.value)
