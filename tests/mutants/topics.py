"""Breaks of the topics of programs: their subjects, snapshots and wildcards, each with the tests that notice it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SERVICE = "subscribing"
_HOSTILE = "subscribing/test_subscribe_hostile.py"
_TOPIC = "subscription/test_topic.py"
_RIGHTS = "access/test_subscriptions.py"

TOPIC_MUTANTS = (
    Mutant(
        "a topic that was reset continues",
        "subscribing/_sources.py",
        "if self.position.incarnation != self.topic.position.incarnation:",
        "if False:",
        _SERVICE,
        "reset and memory",
    ),
    Mutant(
        "a new snapshot of a topic continues where the old one began",
        "subscribing/_sources.py",
        "        self.position = self.topic.position\n        try:\n",
        "        try:\n",
        _SERVICE,
        "reset and memory",
    ),
    Mutant(
        "a topic is subscribed without the right to it",
        "subscribing/_admission.py",
        "if permissions is not None and not ask(permissions.may_follow, name, wanted):",
        "if False:",
        _HOSTILE,
    ),
    Mutant(
        "a topic shows subjects that its caller may not read",
        "subscribing/_sources.py",
        "return self._permissions is None or ask(self._permissions.may_see, event.topic, event.subject)",
        "return True",
        _RIGHTS,
    ),
    Mutant(
        "a topic keeps everything",
        "subscription/_topic_log.py",
        "while (self._events > self._max_events or self._bytes > self._max_bytes) and self.floor + 1 < self.head:",
        "while False:",
        _TOPIC,
    ),
    Mutant(
        "a subscriber that is too slow gets a gap",
        "subscription/_topic_log.py",
        "        if not self.floor <= after <= self.head:\n",
        "        after = max(after, self.floor)\n        if after > self.head:\n",
        _TOPIC,
    ),
    Mutant(
        "a reset topic keeps its old events",
        "subscription/_topic.py",
        "        self._log = TopicLog(self.name)\n        self._snapshots.clear()\n",
        "        self._snapshots.clear()\n",
        _TOPIC,
    ),
    Mutant(
        "a snapshot of a topic is kept although something was published during it",
        "subscription/_topic.py",
        "if self._subscribers[subject] and self.position == before:",
        "if self._subscribers[subject]:",
        _TOPIC,
    ),
    Mutant(
        "a snapshot of a topic is shared after something was published",
        "subscription/_topic.py",
        "        for subject in (*encoded, ANY_SUBJECT):\n            self._snapshots.pop(subject, None)\n",
        "",
        _TOPIC,
    ),
    Mutant(
        "events of a topic come in the wrong order",
        "subscription/_topic_log.py",
        "found.append((number, events))",
        "found.insert(0, (number, events))",
        _TOPIC,
    ),
    Mutant(
        "an event that is published during a snapshot is lost",
        "subscribing/_sources.py",
        "        self.position = self.topic.position\n"
        "        try:\n"
        "            found = [event for subject in sorted(self.subjects) for event in self.topic.snapshot(subject)]\n",
        "        try:\n"
        "            found = [event for subject in sorted(self.subjects) for event in self.topic.snapshot(subject)]\n"
        "            self.position = self.topic.position\n",
        "subscribing/test_subscribed_topics.py",
        "follows",
    ),
    Mutant(
        "a snapshot of a topic outlives its last subscriber",
        "subscription/_topic.py",
        "                    self._snapshots.pop(subject, None)\n\n    def snapshot",
        "                    pass\n\n    def snapshot",
        _TOPIC,
    ),
    Mutant(
        "M-1: the wildcard can be published",
        "subscription/_topic.py",
        "if subject == ANY_SUBJECT:",
        "if False:",
        _TOPIC,
        "test_m1",
    ),
    Mutant(
        "M-1: an app may have two topics of a name",
        "controller/_app.py",
        "if name in self.topics:",
        "if False:",
        _TOPIC,
        "test_m1",
    ),
    Mutant(
        "M-1: every topic has a wildcard",
        "subscribing/_admission.py",
        "if wanted == ANY_SUBJECT and not topic.wildcard:",
        "if False:",
        "subscribing/test_subscribed_topics.py",
        "test_m1",
    ),
)
