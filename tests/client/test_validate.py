"""`Client.validate` returns the result of a write without storing it."""

import pytest

from headway.engine import open_engine
from headway.errors import InvalidArgument
from tests.cli.served import OTHER_ACCOUNT, Account, apps


async def test_validate_returns_what_a_write_would_store() -> None:
    """Nothing is stored, and the argument is not changed."""
    async with open_engine("memory:", *apps) as engine:
        given = OTHER_ACCOUNT.new("ada")
        would_be = await engine.client.validate(given)
        assert (would_be.data.login, given.data.login, would_be.version) == ("ada", "", "")
        assert await engine.client.get(OTHER_ACCOUNT, "ada") is None
        with pytest.raises(InvalidArgument, match="nobody's"):
            await engine.client.validate(OTHER_ACCOUNT.new("eve", Account(login="root")))
        with pytest.raises(InvalidArgument, match="expected a resource, as made by"):
            await engine.client.validate("ada")  # type: ignore[arg-type]
