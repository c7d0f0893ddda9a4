"""Authorization by a request's metadata, before and after a reload."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import MultiDict

from headway.access import ANONYMOUS, REFUSED, VERBS, Access, Authorizer, Identity, Policy, Rule, new_token
from headway.errors import InvalidArgument, PermissionDenied
from headway.resource import TypeName

TEAM = TypeName("staff", "v1", "Team")
CORE = (TEAM, "default", "default", "core")
EXPIRES_AT = 1_000.0


def policy(name: str, *verbs: str, type: str = "staff.v1.Team") -> Policy:
    return Policy(name, [Rule(verbs=verbs, type=type, partition="*", namespace="*")])


READERS, WRITERS, OPEN = policy("readers", "view"), policy("writers", "edit"), policy(ANONYMOUS, "list")
TEXT, TOKEN = new_token(["readers"], expires_at=EXPIRES_AT)
BOTH_TEXT, BOTH = new_token(["readers", "writers"])
ACCESS = Access([READERS, WRITERS], [TOKEN, BOTH])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authorizer(clock: Clock) -> Authorizer:
    return Authorizer(ACCESS, clock=clock)


def allowed(identity: Identity) -> set[str]:
    return {verb for verb in VERBS if identity.allows(verb, *CORE)}


@pytest.mark.parametrize(
    "metadata",
    [
        {"x-consul-token": TEXT},
        {"authorization": f"Bearer {TEXT}"},
        {"authorization": f"bearer {TEXT}"},
        {"authorization": f"Bearer  {TEXT} "},
        {"x-consul-token": "", "authorization": f"Bearer {TEXT}"},
        {"x-consul-token": TEXT, "authorization": "Basic YTpi"},
        {"x-consul-token": TEXT, "authorization": f"Bearer {TEXT}"},
        {"x-consul-token": TEXT, "user-agent": "grpc"},
        MultiDict({"x-consul-token": TEXT}),
    ],
)
def test_token_is_accepted_under_either_key(authorizer: Authorizer, metadata: dict[str, str]) -> None:
    """Consul's key is read first. An empty token counts as no token."""
    identity = authorizer.identify(metadata)

    assert (identity.token, identity.name, repr(identity)) == (TOKEN, TOKEN.accessor, f"<Identity {TOKEN.accessor}>")
    assert allowed(identity) == {"read", "list", "watch"}


def test_token_has_all_of_its_policies(authorizer: Authorizer) -> None:
    """A request is allowed if any policy allows it. Other types are denied."""
    identity = authorizer.identify({"x-consul-token": BOTH_TEXT})

    assert allowed(identity) == set(VERBS) - {"observe"}
    assert not identity.allows("read", TypeName("staff", "v1", "Account"), "default", "default", "core")


@pytest.mark.parametrize("metadata", [{}, {"x-consul-token": ""}, {"authorization": ""}])
def test_caller_without_a_token_has_the_anonymous_policy_or_nothing(metadata: dict[str, str]) -> None:
    """Without a policy of that name, everything is denied."""
    nothing = Authorizer(ACCESS).identify(metadata)
    something = Authorizer(Access([READERS, OPEN], [TOKEN])).identify(metadata)

    assert (allowed(nothing), allowed(something)) == (set(), {"list"})
    assert (something.token, something.name, something.is_current()) == (None, "anonymous", True)


def test_everything_is_denied_without_access_rules() -> None:
    """A server without rules denies everything."""
    authorizer = Authorizer(Access())

    assert allowed(authorizer.identify({})) == set()
    with pytest.raises(PermissionDenied):
        authorizer.identify({"x-consul-token": TEXT})


@given(st.text(st.characters(codec=None), max_size=40), st.sampled_from(["x-consul-token", "authorization"]))
def test_invalid_token_is_never_anonymous(text: str, key: str) -> None:
    """The bearer is denied, always with the same message, and not served as an anonymous caller."""
    authorizer = Authorizer(Access([OPEN], []))
    if text:
        with pytest.raises(PermissionDenied, match=REFUSED):
            authorizer.identify({key: text})


@pytest.mark.parametrize(
    "credentials",
    ["Basic YTpi", TEXT, "Bearer", "Bearer ", f"Token {TEXT}", f"Bearer x {TEXT}"],
    ids=["another scheme", "no scheme", "scheme alone", "no token", "another name", "more than a token"],
)
def test_other_credentials_are_denied_like_a_wrong_token(authorizer: Authorizer, credentials: str) -> None:
    """An unknown scheme authenticates no caller."""
    with pytest.raises(PermissionDenied, match=REFUSED):
        authorizer.identify({"authorization": credentials})


@pytest.mark.parametrize("other", ["x", BOTH_TEXT, ""], ids=["invalid", "valid", "empty"])
def test_two_tokens_are_denied(authorizer: Authorizer, other: str) -> None:
    """One of them could be that of a proxy, or the one by which it has let the request pass."""
    for first, second in ((TEXT, other), (other or "x", TEXT)):
        metadata = {"x-consul-token": first, "authorization": f"Bearer {second}"}
        with pytest.raises(PermissionDenied, match="x-consul-token and authorization have different tokens: send one"):
            authorizer.identify(metadata)
        assert "different tokens" in authorizer.refusal(metadata).why


@pytest.mark.parametrize("key", ["x-consul-token", "authorization"])
def test_token_that_is_sent_twice_is_denied(authorizer: Authorizer, key: str) -> None:
    """The metadata of gRPC may have a key more than once. The first value alone must not count."""
    prefix = "Bearer " if key == "authorization" else ""
    for other in ("x", TEXT):
        metadata = MultiDict([(key, prefix + TEXT), (key, prefix + other)])
        with pytest.raises(PermissionDenied, match=f"{key} has 2 values: send it once"):
            authorizer.identify(metadata)
        assert "2 values" in authorizer.refusal(metadata).why


def test_expired_token_is_denied_and_its_identities_end(authorizer: Authorizer, clock: Clock) -> None:
    """A stream that outlives its token is allowed nothing more, and is notified that it must end."""
    identity = authorizer.identify({"x-consul-token": TEXT})
    clock.now = EXPIRES_AT - 1
    before = (identity.is_current(), identity.allows("read", *CORE))
    clock.now = EXPIRES_AT

    assert (before, identity.is_current(), allowed(identity)) == ((True, True), False, set())
    with pytest.raises(PermissionDenied, match=REFUSED):
        authorizer.identify({"x-consul-token": TEXT})


REPLACED = {
    "the same again": (Access([policy("readers", "view"), WRITERS], [TOKEN]), True),
    "another policy changed": (Access([READERS, policy("writers", "delete")], [TOKEN]), True),
    "token left out": (Access([READERS]), False),
    "token revoked": (Access([READERS], [dataclasses.replace(TOKEN, revoked=True)]), False),
    "token of another text": (Access([READERS], [dataclasses.replace(TOKEN, hash=BOTH.hash)]), False),
    "token bound to more": (Access([READERS, WRITERS], [dataclasses.replace(TOKEN, policies=BOTH.policies)]), False),
    "policy allows less": (Access([policy("readers", "read")], [TOKEN]), False),
    "policy allows more": (Access([policy("readers", "*")], [TOKEN]), False),
    "nothing left": (Access(), False),
}


@pytest.mark.parametrize("what", REPLACED)
def test_identity_stays_valid_while_its_token_means_the_same(authorizer: Authorizer, what: str) -> None:
    """After a reload, a stream continues if nothing has changed for it, and ends otherwise."""
    access, lives = REPLACED[what]
    identity = authorizer.identify({"x-consul-token": TEXT})
    authorizer.replace(access)

    assert identity.is_current() is lives
    assert allowed(identity) == ({"read", "list", "watch"} if lives else set())


def test_identity_is_compared_once_per_reload(authorizer: Authorizer) -> None:
    """After that comparison, checking the identity is as fast as before the reload."""
    identity = authorizer.identify({"x-consul-token": TEXT})
    again = Access([READERS, WRITERS], [TOKEN])
    authorizer.replace(again)

    assert identity.is_current()
    assert identity.access is again


def test_refusal_contains_only_the_question(authorizer: Authorizer) -> None:
    """The message is made from the request alone, so it cannot reveal stored content."""
    identity = authorizer.identify({"x-consul-token": TEXT})
    identity.check("read", *CORE)
    with pytest.raises(PermissionDenied) as caught:
        identity.check("delete", *CORE)

    assert str(caught.value) == (
        "permission denied: delete staff.v1.Team 'core' in default/default; ask for a policy that allows it"
    )


def test_policies_of_a_token_must_exist() -> None:
    """A misspelled policy is reported when the token is bound, not when its bearer is denied."""
    with pytest.raises(InvalidArgument, match="policy 'writer' not found; did you mean 'writers'"):
        Access([WRITERS], [dataclasses.replace(TOKEN, policies=["writer"])])


def test_two_policies_cannot_have_one_name() -> None:
    """A token could not say which policy it means."""
    with pytest.raises(InvalidArgument, match="duplicate name 'readers'"):
        Access([READERS, policy("readers", "read")])


def test_follower_of_an_identity_is_notified_only_of_its_end(authorizer: Authorizer) -> None:
    """The follower gets no notice of a harmless change or of another identity's end, and none after it has stopped."""
    heard: list[str] = []
    both = authorizer.identify({"x-consul-token": BOTH_TEXT})
    one = authorizer.identify({"x-consul-token": TEXT})
    authorizer.follow(both, lambda: heard.append("both"))
    authorizer.follow(one, lambda: heard.append("one"))
    authorizer.follow(one, lambda: heard.append("left"))()

    authorizer.replace(Access([READERS, WRITERS], [TOKEN, BOTH]))
    assert heard == []
    authorizer.replace(Access([READERS, WRITERS], [BOTH]))
    assert (heard, authorizer.followed) == (["one"], 2)


@pytest.mark.parametrize(
    ("rule", "asked", "part"),
    [
        (("default", "blue", ""), ("*", "blue", ""), "partition default"),
        (("default", "blue", ""), ("*", "*", ""), "partition default, namespace blue"),
        (("*", "*", "a-"), ("*", "*", ""), "names that begin with a-"),
        (("default", "blue", ""), ("default", "red", ""), None),
        (("default", "", ""), ("*", "*", ""), None),
    ],
)
def test_denied_list_names_the_part_that_a_rule_covers(
    rule: tuple[str, str, str], asked: tuple[str, str, str], part: str | None
) -> None:
    """The rules are those of the caller with the same verb, so it learns nothing else."""
    partition, namespace, name_prefix = rule
    only = Rule(verbs=["list"], type=str(TEAM), partition=partition, namespace=namespace, name_prefix=name_prefix)
    text, token = new_token(["some"])
    identity = Authorizer(Access([Policy("some", [only])], [token])).identify({"x-consul-token": text})
    assert not identity.allows("list", TEAM, *asked)
    hint = identity.missing() or ""
    assert hint.partition("}")[2] == ("" if part is None else f", or ask only for {part}")
    # Another verb on the type is no reason, and neither is a single name.
    assert not identity.allows("watch", TEAM, *asked)
    assert "ask only for" not in (identity.missing() or "")
    assert not identity.allows("read", TEAM, "default", "blue", "a")
    assert "ask only for" not in (identity.missing() or "")
