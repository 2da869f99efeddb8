"""Permission answers that hold for the rest of a session and are shared with its child agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shoal.core.permissions import AddDirectories, AddRules, SetMode, Suggestion
from shoal.policy.rules import Rule, parse_rule

SOURCE = "this session"


class SessionAnswers:
    """`save` writes an answer that outlasts the session to settings; `notify` shows a text to the user."""

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
        """All answers, in order."""
        self.heard: Callable[[Suggestion], None] = lambda _: None
        """Called with each new answer, so that agents in other processes receive it too."""

    def add(self, update: Suggestion) -> None:
        """Add an answer; a repeated answer changes nothing. Raises `SettingsError` for an invalid rule."""
        if update in self.updates:
            return
        match update:
            case AddRules(rules=rules, behavior=behavior):
                new = tuple(parse_rule(str(rule), SOURCE) for rule in rules)
                self.rules[behavior] = (*self.rules[behavior], *new)
            case AddDirectories(directories=directories):
                self.directories = (*self.directories, *(Path(each).expanduser() for each in directories))
            case SetMode():
                return  # each agent has its own mode
        self.version += 1
        self.updates = (*self.updates, update)
        self.heard(update)
