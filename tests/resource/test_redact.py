"""Secret fields: how they are declared, what stands in their place, and that nothing refuses for their sake."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any, cast

import pytest

import headway
from headway import field
from headway.base import LONGEST, all_frames, error_text, own_frames, scrub, story
from headway.base._text import CLEANS
from headway.errors import DeclarationError, PayloadError
from headway.protobuf import (
    REDACTED,
    REDACTED_CHANGED,
    Description,
    encode,
    holds_secrets,
    rebuild_messages,
    redacted,
    secret_values,
    without_secrets,
)
from headway.resource import ResourceType, redact_error, redacted_resource, redacted_text


@headway.message(name="redact.Login")
class Login:
    user: str = field(1)
    password: str = field(2, secret=True)


@headway.message(name="redact.Vault")
class Vault:
    owner: str = field(1)
    token: str = field(2, secret=True)
    keys: list[bytes] = field(3, secret=True)
    logins: dict[str, Login] = field(4)
    inner: Vault | None = field(5)
    pin: str | None = field(6, secret=True)


@headway.message(name="redact.Plain")
class Plain:
    owner: str = field(1)


VAULT = ResourceType("redact", "v1", "Vault", Vault)


def full() -> Vault:
    return Vault(
        owner="ada",
        token="token-1",
        keys=[b"key-1", b"\xff-key"],
        logins={"a": Login(user="ada", password="password-1")},
        inner=Vault(pin="pin-1"),
    )


def test_copy_has_no_secret_and_the_original_stays() -> None:
    """What is empty or absent stays so: an operator sees that it is not set."""
    given = full()
    shown = redacted(given)
    assert (shown.owner, shown.token, shown.keys) == ("ada", REDACTED, [REDACTED.encode()] * 2)
    assert (shown.logins["a"].user, shown.logins["a"].password) == ("ada", REDACTED)
    assert shown.inner is not None
    assert (shown.inner.pin, shown.inner.token, shown.pin) == (REDACTED, "", None)
    assert given.token == "token-1"
    assert secret_values(shown).keys() == secret_values(given).keys()
    assert repr(given) == repr(shown)
    assert "token-1" not in repr(given)


def test_message_without_secrets_is_returned_itself() -> None:
    """It costs such a program nothing."""
    plain = Plain(owner="ada")
    assert redacted(plain) is plain
    resource = ResourceType("redact", "v1", "Plain", Plain).new("core", plain)
    assert redacted_resource(resource) is resource


def test_rebuilt_class_has_the_same_secrets() -> None:
    """A client that has none of a program's classes redacts as the program does."""
    description = Description()
    description.message(Vault)
    classes = rebuild_messages(description.answer)
    assert [holds_secrets(each) for each in classes] == [True, True]
    made: Any = classes[0]()
    made.token = "token-1"
    assert redacted(made).token == REDACTED


def test_secret_that_differs_is_shown_as_changed() -> None:
    before, after = VAULT.new("core", full()), VAULT.new("core", full())
    after.data.token = "token-2"
    shown = redacted_resource(after, before).data
    assert (shown.token, shown.keys[0]) == (REDACTED_CHANGED, REDACTED.encode())


def test_text_loses_the_values_as_they_are_and_as_repr_writes_them() -> None:
    """The longer of two values goes first, and a value of three characters stays."""
    vault = VAULT.new(
        "core", Vault(token="to'ken\n1", keys=[b"\xff-key"], inner=Vault(token="to'ken\n1-and-more", pin="abc"))
    )
    told = redacted_text("to'ken\n1 {!r} {!r} to'ken\n1-and-more abc".format("to'ken\n1", b"\xff-key"), [vault])
    assert "ken" not in told
    assert "key" not in told
    assert told.endswith("abc")
    assert "-and-more" not in told


def test_error_is_scrubbed_with_its_causes_notes_and_members() -> None:
    cause = KeyError("token-1")
    error = ValueError("token-1 is wrong", 7)
    error.__cause__, error.__context__ = cause, error
    error.add_note("see token-1")
    group = ExceptionGroup("two", [error, RuntimeError("token-1")])
    scrub(group, lambda text: without_secrets(text, ["token-1"]))
    assert "token-1" not in f"{error.args}{error.__notes__}{cause.args}{group.exceptions[1].args}"
    assert error.args == (f"{REDACTED} is wrong", 7)


class Own(Exception):
    """An exception with a text made from an attribute."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token

    def __str__(self) -> str:
        return f"{self.token} is wrong"


@pytest.mark.parametrize(
    "error",
    [
        KeyError(b"token-1"),
        KeyError(("a", "token-1")),
        ValueError(["token-1"]),
        ValueError({"a": "token-1"}),
        FileNotFoundError(2, "No such file", "/keys/token-1"),
        SyntaxError("invalid", ("token-1", 1, 1, "token-1")),
        ExceptionGroup("token-1 in a group", [ValueError(["token-1"])]),
        Own("token-1"),
        Own("x" * (LONGEST - 3) + "token-1"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_texts_of_an_error_have_no_secret_wherever_it_keeps_it(error: Exception) -> None:
    """The last one is longer than what is shown, which would cut the secret."""
    outer = RuntimeError("outer")
    try:
        try:
            raise error
        except Exception as raised:
            raise outer from raised
    except RuntimeError:
        pass
    redact_error(outer, [VAULT.new("core", full())])
    for text in (own_frames(outer), all_frames(outer), story(error), error_text(error)):
        assert "tok" not in text
    assert REDACTED[:3] in own_frames(outer) + story(error)


def test_error_can_still_be_pickled() -> None:
    """A program may send the errors of its events to another process."""
    error = KeyError(b"token-1")
    redact_error(error, [VAULT.new("core", full())])
    assert story(pickle.loads(pickle.dumps(error))) == f"KeyError: b'{REDACTED}'"


def test_what_an_error_keeps_shows_no_secret() -> None:
    """A reporter of the program may show the attributes of an error."""
    error = KeyError(b"token-1")
    redact_error(error, [VAULT.new("core", full())])
    assert CLEANS in vars(error)
    assert "tok" not in repr(vars(error))


def test_error_that_is_raised_again_and_again_does_not_grow() -> None:
    """A program may raise one object each time. Only what could not be removed is kept, and only once."""
    error, other = Own("token-1"), ValueError("token-1")
    for _ in range(3):
        for each in (error, other):
            redact_error(each, [VAULT.new("core", full())])
    assert [len(vars(each).get(CLEANS, ())) for each in (error, other)] == [1, 0]


@pytest.mark.parametrize(
    "invalid",
    [Vault(token=cast("Any", b"token-1")), Vault(token="token-1\ud800"), Vault(keys=cast("Any", ["token-1"]))],
)
def test_error_about_an_invalid_secret_names_the_field_and_not_the_value(invalid: Vault) -> None:
    """Such an error ends in the log of a program that writes the message."""
    with pytest.raises(PayloadError, match=r"^Vault\.(token|keys) has an invalid value, which is secret: ") as caught:
        encode(invalid)
    assert "token-1" not in str(caught.value)


@pytest.mark.parametrize("value", [5, Plain(owner=cast("Any", 5))])
def test_error_about_an_invalid_value_in_a_secret_map_does_not_show_its_key(value: Any) -> None:
    @headway.message(name="redact.Tokens")
    class Tokens:
        by_token: dict[str, str] = field(1, secret=True)

    with pytest.raises(PayloadError, match=r"Tokens\.by_token") as caught:
        encode(Tokens(by_token={"token-1": value}))
    assert "token-1" not in str(caught.value)


def test_only_texts_and_bytes_can_be_secret() -> None:
    for annotation, made in (("int", field(1, secret=True)), ("Login", field(1, secret=True))):
        with pytest.raises(DeclarationError, match="secret=True is for str and bytes"):
            headway.message(type("Wrong", (), {"__annotations__": {"value": annotation}, "value": made}))
    wrong: Any = "yes"
    with pytest.raises(DeclarationError, match="must be True or False"):
        headway.message(type("Wrong", (), {"__annotations__": {"value": str}, "value": field(1, secret=wrong)}))


async def test_store_accepts_a_mark_that_comes_and_goes(tmp_path: Path) -> None:
    """How a value is shown does not change how it is read."""
    for secret in (False, True, False):
        app = headway.App("redact")
        fields = {"__annotations__": {"token": str}, "token": field(1, secret=secret)}
        made: ResourceType[Any] = app.type("redact", "v1", "Key", headway.message(type("Key", (), fields)))
        async with headway.open_engine(f"sqlite:{tmp_path}/keys.db", app) as engine:
            stored = await engine.client.get(made, "core")
            assert stored is None or stored.data.token == "token-1"
            await engine.client.apply(made.new("core", made.payload(token="token-1")))


@pytest.mark.parametrize("secret", ["ключ-é-\U0001f511", "7" * 400, "line one, which is long enough\nline two"])
def test_error_loses_a_secret_as_bytes_escaped_and_cut_off(secret: str) -> None:
    """Such texts come from Python itself: of `int`, of codecs, of JSON."""
    vault = VAULT.new("core", Vault(token=secret))
    for form in (secret, repr(secret), ascii(secret), repr(secret.encode()), json.dumps(secret), f"{secret!r:.60}"):
        error = ValueError(f"{form} is wrong")
        redact_error(error, [vault])
        assert REDACTED in error_text(error)
        for part in ("ключ", "\\xd0", "\\u043a", "777", "line"):
            assert part not in error_text(error)


def test_long_text_loses_each_beginning_of_a_secret_in_one_pass() -> None:
    """An error may quote a field of some megabytes. A megabyte once took seconds."""
    secret = "ab" * 17 + "c"
    began = time.process_time()
    text = without_secrets("ab" * 500_000, [secret])
    assert time.process_time() - began < 1
    assert text.replace(REDACTED, "") == "ab" * (500_000 % 17)
