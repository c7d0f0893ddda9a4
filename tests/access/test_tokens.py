"""Tokens: their stored form, and the denial of any text that is not a valid token."""

from __future__ import annotations

import dataclasses
import hmac
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.access import REFUSED, Token, TokenSet, _tokens, entry, new_token
from headway.errors import InvalidArgument, Unauthenticated

NOW = 1_700_000_000.0

TEXT, TOKEN = new_token(["operators"], description="the deploy job")
EXPIRED_TEXT, EXPIRED = new_token(["operators"], expires_at=NOW)
REVOKED_TEXT, _STANDING = new_token(["operators"])
REVOKED = dataclasses.replace(_STANDING, revoked=True)
TOKENS = TokenSet([TOKEN, EXPIRED, REVOKED])


def secret_of(text: str) -> str:
    return text.split("_")[2]


def with_a_digit_changed(text: str, place: int) -> str:
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]


class Counted:
    """A function that records the arguments of its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self._function(*arguments)


BAD = {
    "unknown": new_token(["operators"])[0],
    "expired": EXPIRED_TEXT,
    "revoked": REVOKED_TEXT,
    "empty": "",
    "wrong secret": with_a_digit_changed(TEXT, len(TEXT) - 1),
    "secret of another token": f"hw_{TOKEN.accessor}_{secret_of(EXPIRED_TEXT)}",
    "accessor of another token": f"hw_{EXPIRED.accessor}_{secret_of(TEXT)}",
    "secret alone": secret_of(TEXT),
    "accessor alone": TOKEN.accessor,
    "the hash": TOKEN.hash,
    "too long": TEXT + "0",
    "too short": TEXT[:-1],
    "another prefix": f"wh{TEXT[2:]}",
    "upper case": TEXT.upper(),
    "surrogates": TEXT[:-1] + "\ud800",
    "accessor and secret of zeros": f"hw_{'0' * 16}_{'0' * 64}",
}


def test_new_token_has_a_readable_prefix_and_256_random_bits() -> None:
    """The text has a kind, an accessor, and a secret that cannot be guessed."""
    texts = [new_token(["operators"])[0] for _ in range(100)]

    assert all(re.fullmatch(r"hw_[0-9a-f]{16}_[0-9a-f]{64}", text) for text in texts)
    assert len({secret_of(text) for text in texts}) == len({text.split("_")[1] for text in texts}) == 100


@given(st.text(max_size=30).filter(str.isprintable), st.none() | st.floats(0, 4e9))
def test_secret_is_never_stored(description: str, expires_at: float | None) -> None:
    """The record, its repr, its entry in a file, and its pickle do not contain the secret or any part of it."""
    text, token = new_token(["operators"], expires_at=expires_at, description=description)
    kept = [
        repr(token),
        str(dataclasses.asdict(token)),
        entry(token),
        repr(pickle.dumps(token)),
        repr(TokenSet([token])),
    ]
    parts = [secret_of(text)[start : start + 16] for start in range(0, 64, 16)]

    assert [(part, each) for part in parts for each in kept if part in each] == []
    assert text.split("_")[1] == token.accessor


def test_repr_omits_the_hash() -> None:
    """The hash is useless in logs."""
    assert "sha256" not in repr(TOKEN)
    assert TOKEN.accessor in repr(TOKEN)


def test_text_finds_its_token() -> None:
    """The text that was displayed once is accepted."""
    assert TOKENS.find(TEXT, NOW) is TOKEN
    assert TOKENS.get(TOKEN.accessor) is TOKEN
    assert (len(TOKENS), list(TOKENS)) == (3, [TOKEN, EXPIRED, REVOKED])


@pytest.mark.parametrize("reason", BAD)
def test_every_invalid_token_gets_the_same_error(reason: str) -> None:
    """The token is unknown, malformed, expired or revoked. The error has the same text and no cause."""
    with pytest.raises(Unauthenticated) as caught:
        TOKENS.find(BAD[reason], NOW)

    assert (type(caught.value), str(caught.value)) == (Unauthenticated, REFUSED)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


@pytest.mark.parametrize("reason", [*BAD, "right"])
def test_every_text_costs_one_hash_and_one_comparison(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work depends neither on the number of tokens nor on the error, so the time reveals nothing."""
    tokens = TokenSet([TOKEN, EXPIRED, REVOKED, *(new_token([])[1] for _ in range(50))])
    text = {**BAD, "right": TEXT}[reason]
    hash_of, compare = Counted(_tokens.hash_of), Counted(hmac.compare_digest)
    look_ups: list[object] = []

    class Counting(dict[str, Token]):
        def get(self, accessor: str, *default: Token) -> Token:  # type: ignore[override]
            look_ups.append(accessor)
            return super().get(accessor, *default)

        def __iter__(self) -> object:  # type: ignore[override]
            raise AssertionError("a token must be found by its accessor, not by a search")

    monkeypatch.setattr(tokens, "_by_accessor", Counting(tokens._by_accessor))
    monkeypatch.setattr(_tokens, "hash_of", hash_of)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    if reason == "right":
        assert tokens.find(text, NOW) is TOKEN
    else:
        with pytest.raises(Unauthenticated):
            tokens.find(text, NOW)

    assert (len(hash_of.calls), len(compare.calls), len(look_ups)) == (1, 1, 1)
    assert [len(compared) for compared in compare.calls[0]] == [len(TOKEN.hash)] * 2


def test_overlong_text_is_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlong text costs no more than a valid token."""
    hash_of = Counted(_tokens.hash_of)
    monkeypatch.setattr(_tokens, "hash_of", hash_of)
    with pytest.raises(Unauthenticated):
        TOKENS.find(TEXT * 10_000, NOW)

    assert hash_of.calls == [("",)]


@pytest.mark.parametrize(("now", "holds"), [(NOW - 0.001, True), (NOW, False), (NOW + 1, False)])
def test_token_is_valid_until_it_expires(now: float, holds: bool) -> None:
    """The token is refused from the second of its expiry on."""
    assert EXPIRED.holds(now) is holds
    if holds:
        assert TOKENS.find(EXPIRED_TEXT, now) is EXPIRED
    else:
        with pytest.raises(Unauthenticated):
            TOKENS.find(EXPIRED_TEXT, now)


surrogates_too = st.characters(codec=None)


@given(
    st.text(surrogates_too, max_size=200)
    | st.text(surrogates_too, min_size=84, max_size=84)
    | st.from_regex(r"hw_[0-9a-f]{16}_[0-9a-f]{64}", fullmatch=True)
    | st.text(surrogates_too, min_size=64, max_size=64).map(lambda secret: f"hw_{TOKEN.accessor}_{secret}")
    | st.integers(0, len(TEXT) - 1).map(lambda place: with_a_digit_changed(TEXT, place))
)
def test_every_other_text_is_denied(text: str) -> None:
    """No text raises another exception."""
    with pytest.raises(Unauthenticated, match=re.escape(REFUSED)):
        TOKENS.find(text, NOW)


def test_two_tokens_cannot_have_one_accessor() -> None:
    """The accessor finds the token, so it would be undefined which of the two is valid."""
    with pytest.raises(InvalidArgument, match=f"duplicate accessor '{TOKEN.accessor}'"):
        TokenSet([TOKEN, dataclasses.replace(TOKEN, description="again")])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"accessor": "short"}, "accessor 'short' must be 16 hexadecimal digits in lower case"),
        ({"accessor": TOKEN.accessor + "\n"}, "must be 16 hexadecimal digits"),
        ({"accessor": None}, "accessor None must be 16 hexadecimal digits"),
        ({"hash": "md5:00"}, "hash is invalid: it must be 'sha256:' and 64 hexadecimal digits in lower case"),
        ({"hash": TOKEN.hash.upper()}, "hash is invalid"),
        ({"hash": None}, "hash is invalid"),
        ({"hash": TEXT}, "hash is the token itself, which must never be stored: it must be 'sha256:'"),
        ({"policies": "operators"}, "policies 'operators' must be a list of the names of policies"),
        ({"policies": ["Not This"]}, "policies: the name 'Not This' is not a valid name"),
        ({"expires_at": "tomorrow"}, "expires_at 'tomorrow' must be seconds since the epoch, such as 1767225600"),
        ({"expires_at": float("nan")}, "expires_at nan must be seconds"),
        ({"expires_at": True}, "expires_at True must be seconds"),
        ({"revoked": 1}, "revoked 1 must be true or false"),
        ({"description": f"is {TEXT}"}, "description contains the text of a token, which must never be stored"),
        ({"description": "a\nb"}, "description 'a\\nb' must be one line of printable text"),
    ],
)
def test_invalid_record_is_refused_with_the_valid_form(changed: dict[str, object], message: str) -> None:
    """The message has the field, the valid form, and the value unless it may be a secret."""
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        dataclasses.replace(TOKEN, **changed)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("field", ["accessor", "hash", "policies", "expires_at", "revoked", "description"])
@pytest.mark.parametrize("shape", ["{}", "{}\n", "<{}>"])
def test_secret_in_the_wrong_field_is_not_repeated(field: str, shape: str) -> None:
    """No message about a field contains a token's text, in whichever field the text is."""
    value: object = shape.format(TEXT)
    with pytest.raises(InvalidArgument) as caught:
        dataclasses.replace(TOKEN, **{field: [value] if field == "policies" else f"{value}\x00"})  # type: ignore[arg-type]

    assert secret_of(TEXT) not in str(caught.value)
