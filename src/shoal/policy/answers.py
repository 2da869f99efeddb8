"""What people have answered for as long as this session lasts; its children share it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shoal.core.permissions import AddDirectories, AddRules, SetMode, Suggestion
from shoal.policy.rules import Rule, parse_rule

SOURCE = "this session"


class SessionAnswers:
    """`keep` writes an answer that is to outlast the session into settings, `note` tells a person."""

    def __init__(
        self,
        keep: Callable[[Suggestion], None] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.keep = keep
        self.note = note
        self.rules: dict[str, tuple[Rule, ...]] = {"allow": (), "ask": (), "deny": ()}
        self.directories: tuple[Path, ...] = ()
        self.version = 0
        self.updates: tuple[Suggestion, ...] = ()
        """All that was answered, in order."""
        self.heard: Callable[[Suggestion], None] = lambda _: None
        """Told of each answer as it comes, so that agents in other processes have it too."""

    def add(self, update: Suggestion) -> None:
        """Raises `SettingsError` for a rule that cannot be. What was answered already changes nothing."""
        if update in self.updates:
            return
        match update:
            case AddRules(rules=rules, behavior=behavior):
                new = tuple(parse_rule(str(rule), SOURCE) for rule in rules)
                self.rules[behavior] = (*self.rules[behavior], *new)
            case AddDirectories(directories=directories):
                self.directories = (*self.directories, *(Path(each).expanduser() for each in directories))
            case SetMode():
                return  # the mode is an agent's own
        self.version += 1
        self.updates = (*self.updates, update)
        self.heard(update)
