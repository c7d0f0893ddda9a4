"""The access file: its contents, the positions of its errors, and its permissions."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headway.access import Access, Policy, Rule, Token, add_token, entry, load_access, new_token, read_access
from headway.errors import ManifestError

HASH = "sha256:" + "0a" * 32
TEXT = f"""\
policies:
  - name: operators
    rules:
      - verbs: [view, edit]
        type: staff.*.*
        partition: default
        namespace: "*"
      - verbs: [write_status]
        type: staff.v1.Team
        partition: ''
        namespace: ''
        name_prefix: core
  - name: nothing
    rules: []
tokens:
  - accessor: 1234567890123456
    hash: {HASH}
    policies: [operators, nothing]
    expires_at: 2026-01-01T01:00:00+01:00
    description: the deploy job
  - accessor: 00000000000000ff
    hash: {HASH}
    policies: []
    revoked: true
"""


def problems_of(text: str) -> list[tuple[int, int, str, str]]:
    with pytest.raises(ManifestError) as caught:
        read_access(text, source="access.yaml")
    assert {problem.source for problem in caught.value.problems} == {"access.yaml"}
    return [(problem.line, problem.column, problem.path, problem.message) for problem in caught.value.problems]


def test_file_contains_policies_and_tokens() -> None:
    """Every field has the same value as in Python. Strings that look like numbers stay strings."""
    access = read_access(TEXT)

    assert access.policies == {
        "operators": Policy(
            "operators",
            [
                Rule(verbs=["view", "edit"], type="staff.*.*", partition="default", namespace="*"),
                Rule(verbs=["write_status"], type="staff.v1.Team", partition="", namespace="", name_prefix="core"),
            ],
        ),
        "nothing": Policy("nothing", []),
    }
    assert list(access.tokens) == [
        Token(
            accessor="1234567890123456",
            hash=HASH,
            policies=["operators", "nothing"],
            expires_at=1767225600,
            description="the deploy job",
        ),
        Token(accessor="00000000000000ff", hash=HASH, policies=[], revoked=True),
    ]
    assert [token.hash for token in access.tokens] == [HASH, HASH]


def test_empty_map_grants_nothing() -> None:
    """A file that grants nothing is valid on purpose."""
    access = read_access("{}")

    assert (access.policies, len(access.tokens)) == ({}, 0)


WRONG = [
    ("rules: []\n", "rules: {}\n", (14, 12, "policies[1].rules", "expected a list, got a mapping")),
    ("rules: []\n", "rulez: []\n", (14, 5, "policies[1]", "unknown field 'rulez'; did you mean 'rules'?")),
    ("rules: []\n", "rulez: []\n", (13, 5, "policies[1]", "rules is required here")),
    ("name: nothing", "name: No", (13, 11, "policies[1].name", "name 'No' is not a valid name")),
    ("name: nothing", "name:", (13, 10, "policies[1].name", "expected a string, got nothing; write ''")),
    ("name: nothing", "name: [a]", (13, 11, "policies[1].name", "expected a string, got a sequence")),
    ("name: nothing", "name: operators", (13, 11, "policies[1].name", "duplicate policy 'operators'")),
    (
        "[view, edit]",
        "[view, edits]",
        (4, 23, "policies[0].rules[0].verbs[1]", "verbs: 'edits' is not a verb; did you"),
    ),
    ("[view, edit]", "[]", (4, 16, "policies[0].rules[0].verbs", "verbs is empty")),
    ("[view, edit]", "view", (4, 16, "policies[0].rules[0].verbs", "expected a list, got a scalar")),
    ("staff.v1.Team", "staff.Team", (9, 15, "policies[0].rules[1].type", "type 'staff.Team' must have three parts")),
    ("partition: default", "partition: a b", (6, 20, "policies[0].rules[0].partition", "partition 'a b' is not a")),
    ('namespace: "*"', "namespace:", (7, 19, "policies[0].rules[0].namespace", "expected a string, got nothing")),
    ('        namespace: "*"\n', "", (4, 9, "policies[0].rules[0]", "namespace is required here")),
    (
        "name_prefix: core",
        "name_prefix: '*'",
        (12, 22, "policies[0].rules[1].name_prefix", "name_prefix '*' is invalid"),
    ),
    ("1234567890123456", "12", (16, 15, "tokens[0].accessor", "accessor '12' must be 16 hexadecimal digits")),
    ("1234567890123456", "00000000000000ff", (21, 5, "tokens[1]", "duplicate token '00000000000000ff'")),
    (f"hash: {HASH}", "hash: 7", (17, 11, "tokens[0].hash", "hash is invalid: it must be 'sha256:' and 64")),
    (
        "[operators, nothing]",
        "[operator]",
        (18, 16, "tokens[0].policies[0]", "policies: policy 'operator' not found; did"),
    ),
    ("2026-01-01T01:00:00+01:00", "2026-01-01", (19, 17, "tokens[0].expires_at", "expires_at '2026-01-01' must be a")),
    ("2026-01-01T01:00:00+01:00", "1e9", (19, 17, "tokens[0].expires_at", "expires_at '1e9' must be a time with its")),
    ("revoked: true", "revoked: yes", (24, 14, "tokens[1].revoked", "revoked 'yes' must be true or false")),
    ("the deploy job", '"a\\nb"', (20, 18, "tokens[0].description", "description 'a\\nb' must be one line")),
    ("the deploy job", "x\n    description: y", (21, 5, "tokens[0].description", "the key 'description' was already")),
    ("tokens:", "token:", (15, 1, "", "unknown field 'token'; did you mean 'tokens'?")),
    ('"*"', "*", (7, 21, "", "expected a name after '&' or '*': quote the text")),
    (
        '"*"',
        "*any",
        (7, 20, "policies[0].rules[0].namespace", "an alias is not allowed here: text that begins with '*' must be in"),
    ),
]


@pytest.mark.parametrize(("right", "wrong", "problem"), WRONG, ids=[f"{right}-{wrong}" for right, wrong, _ in WRONG])
def test_errors_have_a_position(right: str, wrong: str, problem: tuple[int, int, str, str]) -> None:
    """An error has line, column and path, and a message with the value and the valid form."""
    line, column, path, message = problem
    found = problems_of(TEXT.replace(right, wrong, 1))

    assert [each for each in found if each[:2] == (line, column) and each[2].startswith(path) and message in each[3]], (
        found
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty: to deny everything, write {}"),
        ("# later\n", "the file is empty"),
        ("- 1", "expected a mapping with any of policies, tokens, issuers, limits; got a sequence"),
        ("policies: [", "expected a value"),
        ("{}\n---\n{}", "a document was already given at line 1, column 1: keep one of them"),
        ("\x07", "the character U+0007 is not allowed"),
        ("\ud800", "the character U+D800 is not allowed"),
        ("[" * 100_000, "this is nested deeper than 100 levels"),
        ("policies: &a [*a]", "an alias is not allowed here"),
        ("? [a]\n: b", "a list can't be a key"),
        ("policies: !!python/name:os.system", "expected a list, got a scalar"),
        ("policies: !!python/name:os.system", "a tag is not allowed"),
        ("policies: !secret []", "a tag is not allowed"),
        ('on: a\n"on": b', "unknown field 'on'"),
        ("policies: !!yaml '*'", "is not allowed"),
    ],
)
def test_invalid_access_file_is_refused(text: str, message: str) -> None:
    """The error is a ManifestError with a place, for any content."""
    assert any(message in found[3] for found in problems_of(text))


@given(st.text(st.characters(codec=None), max_size=60) | st.text("[]{}:,-*&!'\"#|> \n\ta1", max_size=60))
def test_any_text_is_valid_or_a_manifest_error(text: str) -> None:
    """No exception other than ManifestError is raised."""
    with contextlib.suppress(ManifestError):
        assert isinstance(read_access(text), Access)


@pytest.mark.parametrize(
    "text",
    [
        "accessor: {}",
        "accessor: {}\n    accessor: {}",
        "{}: 1\n    {}: 2",
        "hash: {}",
        "policies: [{}]",
        "expires_at: {}",
        "revoked: {}",
        "description: is {}",
        "{}: 1",
        "{",
    ],
)
def test_secret_in_the_file_is_not_repeated(text: str) -> None:
    """A token's text that is put into the file by mistake does not reach the log."""
    secret, _ = new_token([])
    with pytest.raises(ManifestError) as caught:
        read_access(f"tokens:\n  - {text.replace('{}', secret)}\n    {secret}: x\n    x: !{secret} ''\n")

    assert secret.split("_")[2] not in str(caught.value)


@given(
    st.text(st.characters(codec="utf-8"), max_size=40).filter(str.isprintable),
    st.none() | st.integers(0, 10**11) | st.sampled_from([0.5, 1767225600.125]),
    st.booleans(),
)
def test_entry_reads_back_as_its_token(description: str, expires_at: float | None, revoked: bool) -> None:
    """The line that `entry` writes under `tokens:` is parsed as the same token."""
    _, new = new_token(["some"], expires_at=expires_at, description=description)
    token = dataclasses.replace(new, revoked=revoked)
    access = read_access("policies:\n  - {name: some, rules: []}\ntokens:\n" + entry(token) + entry(new_token([])[1]))

    found = access.tokens.get(token.accessor)
    assert found == token
    assert found.hash == token.hash


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_file_accessible_only_to_its_owner_is_loaded(tmp_path: Path) -> None:
    """The owner may have the right to read and write, or only to read."""
    for mode in (0o600, 0o400):
        assert isinstance(load_access(write(tmp_path / f"{mode:o}.yaml", TEXT.encode(), mode)), Access)


@pytest.mark.parametrize("bits", [0o020, 0o010, 0o004, 0o002, 0o001])
def test_file_accessible_to_others_is_refused(tmp_path: Path, bits: int) -> None:
    """A single permission bit is enough, as for a secret (tests/base/test_private_files.py). The message has the
    remedy.
    """
    path = write(tmp_path / "access.yaml", TEXT.encode(), 0o600 | bits)
    with pytest.raises(ManifestError) as caught:
        load_access(path)

    verb = "change" if bits & 0o022 else "read"
    mode = f"mode {0o600 | bits:04o}"
    message = f"{path}:1:1: this file has {mode}, so that other users can {verb} it: chmod 600 {path}"
    assert str(caught.value) == message


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other users")
def test_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """The owner of the file could grant anything. The message has the owner and the remedy."""
    path = write(tmp_path / "access.yaml", TEXT.encode())
    os.chown(path, 1500001, -1)
    with pytest.raises(ManifestError) as caught:
        load_access(path)

    assert str(caught.value) == f"{path}:1:1: this file belongs to user 1500001, who can replace it: chown 0 {path}"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other users")
def test_token_added_by_root_leaves_the_files_owner(tmp_path: Path) -> None:
    """The server of that user must be able to read the file."""
    path = write(tmp_path / "access.yaml", b"policies:\n  - {name: some, rules: []}\ntokens:\n")
    os.chown(path, 1500001, -1)
    _, token = new_token(["some"])
    add_token(path, token)

    assert (path.stat().st_uid, token.accessor in path.read_text()) == (1500001, True)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other groups")
def test_token_added_by_root_leaves_the_files_group_and_mode(tmp_path: Path) -> None:
    """The server may read it through the group."""
    path = write(tmp_path / "access.yaml", b"policies:\n  - {name: some, rules: []}\ntokens:\n", 0o640)
    os.chown(path, 0, 1500001)
    add_token(path, new_token(["some"])[1])
    assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (1500001, 0o640)


def test_file_that_is_not_utf_8_is_refused_with_the_place(tmp_path: Path) -> None:
    """The error has the line and column of the byte. It does not come from YAML."""
    path = write(tmp_path / "access.yaml", "policies: []\n# café".encode("latin-1"))
    with pytest.raises(ManifestError, match=r":2:6: this byte is not UTF-8: save the file as UTF-8"):
        load_access(path)


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_access(tmp_path / "access.yaml")


def test_reader_works_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """If PyYAML lacks its C extension, the Python loader gives the same result."""
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)

    assert list(read_access(TEXT).tokens)
    assert "quote the text" in problems_of(TEXT.replace('"*"', "*"))[0][3]
