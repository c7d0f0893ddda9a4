"""Problems say where a secret is wrong, and never what it is."""

from __future__ import annotations

import json

import pytest

from headway import field, message
from headway.documents import Format
from headway.manifest import ManifestError, load
from headway.protobuf import REDACTED
from headway.resource import Registry, ResourceType

CANARY = "Kanarie7"


@message(name="secrets.Login")
class Login:
    user: str = field(1)
    password: str = field(2, secret=True)


@message(name="secrets.Vault")
class Vault:
    """A message that validates its secrets, and quotes them in every way."""

    port: int = field(1)
    since: float = field(2)
    login: Login = field(3)
    tags: dict[str, str] = field(4)
    key: str = field(5, secret=True)

    def __post_init__(self) -> None:
        for each in (self.key, self.login.password):
            if each.startswith("ключ"):
                raise ValueError(f"bad key {each}, {each!r}, {each!a}, {each.encode()!r}, {json.dumps(each)}")
            if each.isdigit():
                int(f"{each}x")


@message(name="secrets.Plain")
class Plain:
    user: str = field(1)


VAULT = ResourceType("secrets", "v1", "Vault", Vault)
PLAIN = ResourceType("secrets", "v1", "Plain", Plain)
REGISTRY = Registry()
for each in (VAULT, PLAIN):
    REGISTRY.register(each)

# Each is the text of a manifest, with the place of the problem that it must have.
YAML = {
    "key: !Kanarie7": "4:8",
    "key: *Kanarie7": "4:8",
    "key: &Kanarie7": "4:3",
    "key: [Kanarie7]": "4:3",
    "key: 'x' Kanarie7": "4:12",
    "key: a: Kanarie7": "4:9",
    "key: 'Kanarie7": "5:1",
    'key: "Kanarie7\\q"': "4:17",
    "key: @Kanarie7": "4:8",
    "key: %Kanarie7": "4:8",
    "port: Kanarie7": "4:9",
    "port: !!int Kanarie7": "4:9",
    "since: [Kanarie7]": "4:10",
    "login: Kanarie7": "4:10",
    "tags: Kanarie7": "4:9",
    "tags: {a: [Kanarie7]}": "4:13",
}
JSON = {
    '"key": Kanarie7': "1:59",
    '"key": "a" Kanarie7': "1:63",
    '"key": 7Kanarie7': "1:59",
    '"key": -Kanarie7': "1:59",
    '"key": "Kanarie7': "1:59",
    '"port": "Kanarie7"': "1:60",
    '"key" Kanarie7': "1:58",
}
HCL = {
    "key = Kanarie7": "4:7",
    "key = Kanarie7.Kanarie7": "4:7",
    "key = Kanarie7(1)": "4:7",
    "key = 'Kanarie7'": "4:7",
    "key = @Kanarie7": "4:7",
    "key = !Kanarie7": "4:7",
    'key = "Kanarie7': "5:2",
    'key = "${Kanarie7}"': "4:8",
    "key Kanarie7": "4:5",
    "key: Kanarie7": "4:4",
    'port = "Kanarie7"': "4:8",
    "key = <<Kanarie7": "5:2",
}
CASES: list[tuple[Format, str, str]] = [
    *(("YAML", f"type: TYPE\nname: a\ndata:\n  {text}\n", place) for text, place in YAML.items()),
    *(("JSON", f'{{"type": "TYPE", "name": "a", "data": {{{text}}}}}', place) for text, place in JSON.items()),
    *(("HCL", f'type = "TYPE"\nname = "a"\ndata {{\n{text}\n}}', place) for text, place in HCL.items()),
]


def problems_of(text: str, format: Format) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, REGISTRY, source="f", format=format)
    return [str(each) for each in caught.value.problems]


@pytest.mark.parametrize(("format", "text", "place"), CASES)
def test_problem_of_a_type_with_secrets_has_a_place_and_no_value(format: Format, text: str, place: str) -> None:
    """A secret without its quotes, in the wrong field or in the wrong shape is still a secret."""
    problems = problems_of(text.replace("TYPE", "secrets.v1.Vault"), format)
    assert problems[-1].startswith(f"f:{place}: ")
    assert CANARY not in "\n".join(problems)


@pytest.mark.parametrize(("format", "text", "place"), CASES)
def test_problem_of_an_unknown_type_has_no_value(format: Format, text: str, place: str) -> None:
    """The type may be misspelled, and the name of one with secrets."""
    assert place
    assert CANARY not in "\n".join(problems_of(text.replace("TYPE", "secrets.v1.Valt"), format))


def test_type_without_secrets_still_quotes_its_values() -> None:
    """There, the value is the fastest way to find the mistake."""
    assert problems_of("type: Plain\nname: a\ndata: {user: 12345678}", "YAML") == [
        "f:3:14: data.user: 12345678 is read as a whole number, not text; quote it: '12345678'"
    ]


@pytest.mark.parametrize("field", ["key", "login.password"])
@pytest.mark.parametrize("secret", ["ключ-7", "ключ 'é' \"\U0001f511\"\n7", "7" * 400])
def test_error_of_a_constructor_loses_the_secret_in_every_form(field: str, secret: str) -> None:
    """As bytes, escaped, as JSON, and where Python has cut it off; also if an outer message quotes an inner one's."""
    data = {"key": secret} if field == "key" else {"login": {"password": secret}}
    document = json.dumps({"type": "Vault", "name": "a", "data": data})
    [problem] = problems_of(document, "JSON")
    assert "Vault rejected these fields: " in problem
    assert REDACTED in problem
    for part in ("\u043a", "\\xd0", "\\u043a", "0001f511", "d83d", "7777"):
        assert part not in problem
