"""Issuers in an access file: their values, their files, and errors that name the field, the value and a right one."""

from __future__ import annotations

import dataclasses
import enum
import os
import shutil
import sys
from pathlib import Path
from typing import cast

import pytest
import trustme

from headway.access import Access, Authorizer, Binding, Issuer, load_access, new_token, read_access, read_keys
from headway.access import add_token as add
from headway.errors import DeclarationError, InvalidArgument, ManifestError
from tests.access.logins import ISS, KEYS, issuer
from tests.helpers.login_issuer import claims, signed

TEXT = """\
policies:
  - {name: operators, rules: []}
issuers:
  - name: corp
    issuer: https://login.example.com
    audiences: [headway, "7"]
    algorithms: [RS256]
    authority: ca.pem
    leeway: 10
    refresh_interval: 60
    stale_limit: 3600.5
    bindings:
      - claims: {groups: [ops, admins], email_verified: true, level: 3, /realm/roles: "5"}
        policies: [operators]
      - claims: {}
        policies: []
"""


class Group(str, enum.Enum):  # noqa: UP042  # the older way, in which str() shows the name
    OPS = "ops"


class Level(enum.IntEnum):
    THREE = 3


def test_members_of_enums_are_the_values_that_json_has() -> None:
    """Otherwise such a binding would be accepted and match nothing."""
    binding = Binding(claims={"groups": [Group.OPS], "level": Level.THREE, "active": True}, policies=["operators"])

    assert binding.claims == {"groups": ("ops",), "level": (3,), "active": (True,)}
    assert binding.matches({"groups": ["ops"], "level": 3, "active": True})
    assert not binding.matches({"groups": ["ops"], "level": 3, "active": 1})


def problems_of(text: str) -> list[tuple[int, int, str, str]]:
    with pytest.raises(ManifestError) as caught:
        read_access(text)
    return [(problem.line, problem.column, problem.path, problem.message) for problem in caught.value.problems]


def test_file_contains_issuers() -> None:
    """Every field has the same value as in Python. Values of claims have the type that YAML gives them."""
    expected = Issuer(
        name="corp",
        issuer="https://login.example.com",
        audiences=["headway", "7"],
        algorithms=["RS256"],
        authority="ca.pem",
        leeway=10,
        refresh_interval=60,
        stale_limit=3600.5,
        bindings=[
            Binding(
                claims={"groups": ["ops", "admins"], "email_verified": True, "level": 3, "/realm/roles": "5"},
                policies=["operators"],
            ),
            Binding(claims={}, policies=[]),
        ],
    )

    found = read_access(TEXT).issuers["corp"]

    assert dataclasses.astuple(found) == dataclasses.astuple(expected)
    binding, _ = found.bindings
    types = [type(value) for values in binding.claims.values() for value in cast("list[object]", values)]
    assert types == [str, str, bool, int, str]


WRONG = [
    ("    audiences:", "    audience:", "issuers[0]", "unknown field 'audience'; did you mean 'audiences'?"),
    ("    issuer: https", "    iss: https", "issuers[0]", "issuer is required here"),
    ("name: corp", "name: Corp", "issuers[0].name", "name 'Corp' is not a valid name: use 1 to 63 lower-case letters"),
    (
        "https://login",
        "http://login",
        "issuers[0]",
        "must be an https:// URL without a user, query or fragment, such as",
    ),
    ("https://login", "https://me@login", "issuers[0]", "must be an https:// URL without a user, query or fragment"),
    ("example.com", "example.com/?x", "issuers[0]", "must be an https:// URL without a user, query or fragment"),
    ('[headway, "7"]', "[]", "issuers[0].audiences", "audiences is empty: name what the claim aud must have, such as"),
    ('[headway, "7"]', "headway", "issuers[0].audiences", "expected a list, got a scalar; write [] for an empty one"),
    ("[RS256]", "[none]", "issuers[0].algorithms[0]", "'none' accepts tokens that nobody has signed; use 'RS256'"),
    ("[RS256]", "[NoNe]", "issuers[0].algorithms[0]", "'NoNe' accepts tokens that nobody has signed; use 'RS256'"),
    ("[RS256]", "[HS256]", "issuers[0].algorithms[0]", "'HS256' signs with a shared secret, which a public key is not"),
    ("[RS256]", "[RS255]", "issuers[0].algorithms[0]", "'RS255' is not allowed; did you mean 'RS256'?"),
    ("[RS256]", "[]", "issuers[0].algorithms", "algorithms is empty: use any of RS256, RS384"),
    (
        "leeway: 10",
        "leeway: 301",
        "issuers[0].leeway",
        "leeway 301.0 must be a number of seconds from 0 to 300, such as",
    ),
    ("leeway: 10", "leeway: 10s", "issuers[0].leeway", "leeway '10s' must be a number of seconds from 0 to 300"),
    ("leeway: 10", "leeway: .nan", "issuers[0].leeway", "leeway '.nan' must be a number of seconds from 0 to 300"),
    ("interval: 60", "interval: 1", "issuers[0].refresh_interval", "refresh_interval 1.0 must be a number of seconds"),
    ("3600.5", "59", "issuers[0].stale_limit", "stale_limit 59.0 must be a number of seconds from 60 to 604800, such"),
    ("interval: 60", "interval: 9000", "issuers[0]", "stale_limit 3600.5 must be at least refresh_interval (9000), be"),
    (
        "authority: ca.pem",
        "authority: ca.pem\n    jwks_file: k",
        "issuers[0]",
        "jwks_file replaces discovery: give one",
    ),
    (
        "level: 3",
        "level: 3.5",
        "issuers[0].bindings[0].claims.level",
        "the value must be a text, true, false or a whole",
    ),
    ("level: 3", "level: ~", "issuers[0].bindings[0].claims.level", "true, false or a whole number; write a text that"),
    ("level: 3", "level: {a: b}", "issuers[0].bindings[0].claims.level", "got a mapping"),
    ("level: 3", "level: []", "issuers[0].bindings[0].claims", "level is empty, so that no login would match: give a"),
    (
        "level: 3",
        "7: a, '7': b",
        "issuers[0].bindings[0].claims.7",
        "the claim '7' was already given: keep one of them",
    ),
    ("claims: {}", "claims: []", "issuers[0].bindings[1].claims", "such as {groups: ops}; write {} for every login"),
    ("      - claims: {}\n        policies", "      - policies", "issuers[0].bindings[1]", "claims is required here"),
    ("[operators]", "[operator]", "issuers[0].bindings[0].policies[0]", "policy 'operator' not found; did you mean"),
    ("issuers:\n", "issuers:\n  - {}\n", "issuers[0]", "name is required here"),
]


@pytest.mark.parametrize(("right", "wrong", "path", "message"), WRONG, ids=[wrong.strip() for _, wrong, _, _ in WRONG])
def test_errors_name_the_field_and_what_is_right(right: str, wrong: str, path: str, message: str) -> None:
    """Each problem has its line and column, too."""
    assert right in TEXT
    text = TEXT.replace(right, wrong, 1)

    found = [each for each in problems_of(text) if each[2] == path and message in each[3]]

    assert len(found) == 1, problems_of(text)
    assert 3 < found[0][0] < len(text.splitlines()) + 1


def test_two_issuers_differ_in_name_and_claim() -> None:
    """Otherwise it would depend on their order which of them admits a login."""
    again = TEXT[TEXT.index("  - name: corp") :]

    assert [each[3] for each in problems_of(TEXT + again)] == [
        "duplicate name 'corp': merge the two, or rename one",
        "duplicate issuer 'https://login.example.com': merge the two, or rename one",
    ]
    with pytest.raises(InvalidArgument, match=r"corp and more have the same issuer 'https://login.example.com'"):
        Access(issuers=[issuer(bindings=[Binding(claims={}, policies=[])]), issuer(name="more")])
    with pytest.raises(InvalidArgument, match="issuer corp: policies: policy 'operators' not found"):
        Access(issuers=[issuer()])


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def with_file(field: str) -> str:
    return TEXT.replace("authority: ca.pem", field)


def test_files_are_read_beside_the_access_file(tmp_path: Path) -> None:
    """A login is then accepted at once. `headway token new --into` keeps the issuers."""
    written(tmp_path / "keys.json", KEYS)
    path = written(tmp_path / "access.yaml", with_file("jwks_file: keys.json") + "tokens:\n")
    add(path, new_token(["operators"])[1])

    authorizer = Authorizer(load_access(path))

    text = signed(
        {"alg": "RS256", "kid": "a"}, claims(ISS, groups="ops", email_verified=True, level=3, realm={"roles": "5"})
    )
    assert authorizer.identify({"x-consul-token": text}).name == "corp/ada"
    (tmp_path / "ca.pem").write_bytes(trustme.CA().cert_pem.bytes())
    assert load_access(written(path, TEXT)).issuers["corp"].authority == str(tmp_path / "ca.pem")


def test_files_are_found_beside_a_link_when_its_target_is_replaced(tmp_path: Path) -> None:
    """Kubernetes mounts files as links into a directory of one version, which it removes at the next change."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        written(tmp_path / version / "access.yaml", with_file("jwks_file: keys.json"))
        written(tmp_path / version / "keys.json", KEYS)
    (tmp_path / "data").symlink_to("v1")
    for name in ("access.yaml", "keys.json"):
        (tmp_path / name).symlink_to(f"data/{name}")
    path = load_access(tmp_path / "access.yaml").issuers["corp"].jwks_file

    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("v2")
    shutil.rmtree(tmp_path / "v1")

    assert read_keys(Path(path).read_text()).names == ("a", "d", "e")


FILES = {
    "missing": ("jwks_file: keys.json", None, 0o644, "cannot be read: No such file or directory; name a file such as"),
    "not JSON": ("jwks_file: keys.json", "{", 0o644, "the JWKS is not JSON"),
    "no keys": (
        "jwks_file: keys.json",
        '{"keys": []}',
        0o644,
        "the JWKS has no key that can be used; name a file such",
    ),
    "writable": ("jwks_file: keys.json", KEYS, 0o664, "users other than its owner can change it: chmod 644"),
    "large": ("jwks_file: keys.json", " " * 300_000, 0o644, "it has more than 262144 bytes"),
    "no authority": ("authority: keys.json", None, 0o644, "No such file or directory; name a file such as ca.pem"),
    "no certificates": ("authority: keys.json", "hello", 0o644, "no certificate in PEM form"),
    "authority writable": (
        "authority: keys.json",
        "hello",
        0o646,
        "users other than its owner can change it: chmod 644",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_file_that_cannot_be_used_is_an_error_at_the_start(name: str, tmp_path: Path) -> None:
    """It names the field, the file and what would be right."""
    field, content, mode, message = FILES[name]
    path = written(tmp_path / "access.yaml", with_file(field))
    if content is not None:
        (tmp_path / "keys.json").write_text(content)
        (tmp_path / "keys.json").chmod(mode)

    with pytest.raises(ManifestError) as caught:
        load_access(path)

    (problem,) = caught.value.problems
    assert problem.path == "issuers[0]"
    assert problem.message.startswith(f"{field.split(':')[0]} {tmp_path / 'keys.json'}")
    assert message in problem.message


def test_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    """Opening it would wait for a writer."""
    os.mkfifo(tmp_path / "keys.json", 0o600)

    with pytest.raises(ManifestError, match="it is not a regular file"):
        load_access(written(tmp_path / "access.yaml", with_file("jwks_file: keys.json")))


@pytest.mark.parametrize("library", ["joserfc.jwk", "h11"])
def test_missing_library_is_named_with_its_extra(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without issuers needs none of them."""
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "ca.pem").write_bytes(trustme.CA().cert_pem.bytes())

    with pytest.raises(DeclarationError, match=rf"need {library.partition('.')[0]}: pip install 'headway\[jwt\]'"):
        load_access(written(tmp_path / "access.yaml", TEXT))
    assert load_access(written(tmp_path / "access.yaml", "{}")).issuers == {}
