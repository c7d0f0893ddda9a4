"""The machine of a controller's run, with a scope of each type: the contract holds within the scopes."""

from __future__ import annotations

from tests.helpers.run_machine import RunMachine


class ScopedRunMachine(RunMachine):
    """A run whose members enter and leave the scope by users' writes, and its summaries by its own writes."""

    scoped = True

    def _outputs(self) -> dict[str, tuple[str, list[str]]]:
        """Return the summaries in the scope. The controller does not notice what users do to the others."""
        shown = self.store.resources(self.pools.summary)
        return {name: found for name, found in super()._outputs().items() if shown[name].metadata["shown"] == "yes"}

    def _expected(self) -> dict[str, tuple[str, list[str]]]:
        members = self.store.resources(self.pools.member)
        counting = {name for name, member in members.items() if member.metadata["counts"] == "yes"}
        expected: dict[str, tuple[str, list[str]]] = {}
        for name, pool in self.store.resources(self.pools.pool).items():
            listed = sorted(each for each in counting if members[each].data.pool == name)
            listed += self.noted(name)
            if len(listed) % 2:
                expected[name] = (pool.uid, listed)
        return expected
