"""From a request's metadata to yes or no, now and after what holds has been replaced."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        {"x-consul-token": TEXT, "user-agent": "grpc"},
    ],
)
def test_a_token_comes_by_either_key(authorizer: Authorizer, metadata: dict[str, str]) -> None:
    """The origin's key is asked first; an empty token is none."""
    identity = authorizer.identify(metadata)

    assert (identity.token, identity.name, repr(identity)) == (TOKEN, TOKEN.accessor, f"<Identity {TOKEN.accessor}>")
    assert allowed(identity) == {"read", "list", "watch"}


def test_a_token_has_all_of_its_policies(authorizer: Authorizer) -> None:
    """What any of them allows, and nothing on other types."""
    identity = authorizer.identify({"x-consul-token": BOTH_TEXT})

    assert allowed(identity) == set(VERBS)
    assert not identity.allows("read", TypeName("staff", "v1", "Account"), "default", "default", "core")


@pytest.mark.parametrize("metadata", [{}, {"x-consul-token": ""}, {"authorization": ""}])
def test_without_a_token_a_caller_has_the_anonymous_policy_or_nothing(metadata: dict[str, str]) -> None:
    """Nothing is allowed to who says nothing, unless a policy of that name does."""
    nothing = Authorizer(ACCESS).identify(metadata)
    something = Authorizer(Access([READERS, OPEN], [TOKEN])).identify(metadata)

    assert (allowed(nothing), allowed(something)) == (set(), {"list"})
    assert (something.token, something.name, something.is_current()) == (None, "anonymous", True)


def test_a_bearer_does_not_have_the_anonymous_policy_too() -> None:
    """A token's policies are all that it has."""
    authorizer = Authorizer(Access([WRITERS, OPEN], [dataclasses.replace(BOTH, policies=["writers"])]))

    assert allowed(authorizer.identify({"x-consul-token": BOTH_TEXT})) == {"write", "write_status", "delete"}


def test_without_access_nobody_may_do_anything() -> None:
    """A server that was given nothing is closed."""
    authorizer = Authorizer(Access())

    assert allowed(authorizer.identify({})) == set()
    with pytest.raises(PermissionDenied):
        authorizer.identify({"x-consul-token": TEXT})


@given(st.text(st.characters(codec=None), max_size=40), st.sampled_from(["x-consul-token", "authorization"]))
def test_a_token_that_does_not_hold_is_never_anonymous(text: str, key: str) -> None:
    """Who presents something is denied, in the same words, and not served as someone else."""
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
    """A scheme that isn't known proves nobody."""
    with pytest.raises(PermissionDenied, match=REFUSED):
        authorizer.identify({"authorization": credentials})


def test_an_expired_token_is_denied_and_its_identities_end(authorizer: Authorizer, clock: Clock) -> None:
    """A stream that outlives its token allows nothing any more, and knows that it has to end."""
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
def test_an_identity_lives_while_its_token_means_the_same(authorizer: Authorizer, what: str) -> None:
    """After a reload a stream goes on where nothing has changed for it, and has to end where anything has."""
    access, lives = REPLACED[what]
    identity = authorizer.identify({"x-consul-token": TEXT})
    authorizer.replace(access)

    assert identity.is_current() is lives
    assert allowed(identity) == ({"read", "list", "watch"} if lives else set())


def test_an_identity_without_a_token_ends_with_the_anonymous_policy() -> None:
    """What anyone may do can change as well."""
    authorizer = Authorizer(Access([OPEN]))
    identity = authorizer.identify({})
    authorizer.replace(Access([OPEN, READERS]))
    before = allowed(identity)
    authorizer.replace(Access([READERS]))

    assert (before, allowed(identity), identity.is_current()) == ({"list"}, set(), False)


def test_a_reload_is_compared_once(authorizer: Authorizer) -> None:
    """An identity that has passed a reload is as quick afterwards as before it."""
    identity = authorizer.identify({"x-consul-token": TEXT})
    again = Access([READERS, WRITERS], [TOKEN])
    authorizer.replace(again)

    assert identity.is_current()
    assert identity.access is again


def test_a_refusal_says_the_question_and_nothing_else(authorizer: Authorizer) -> None:
    """It has nothing to go by but what was asked, so that it can't tell what is there."""
    identity = authorizer.identify({"x-consul-token": TEXT})
    identity.check("read", *CORE)
    with pytest.raises(PermissionDenied) as caught:
        identity.check("delete", *CORE)

    assert str(caught.value) == (
        "permission denied: delete staff.v1.Team 'core' in default/default; ask for a policy that allows it"
    )


def test_a_token_names_policies_that_are_there() -> None:
    """A misspelt policy is told when it is bound, not when its bearer is turned away."""
    with pytest.raises(InvalidArgument, match="policy 'writer' not found; did you mean 'writers'"):
        Access([WRITERS], [dataclasses.replace(TOKEN, policies=["writer"])])


def test_two_policies_can_not_have_one_name() -> None:
    """Which of the two is meant could not be said."""
    with pytest.raises(InvalidArgument, match="duplicate name 'readers'"):
        Access([READERS, policy("readers", "read")])


def test_who_follows_an_identity_hears_of_its_end_alone(authorizer: Authorizer) -> None:
    """Not of a change that leaves it as it is, nor of another's end, nor when it isn't followed any more."""
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
