"""Permission answers that hold for the rest of a session and are shared with its child agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    PermissionSuggestion,
    SetPermissionModeSuggestion,
)
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.policy.permission_rules import ToolPermissionRule, parse_permission_rule

SESSION_SOURCE = "this session"


class RememberedPermissionAnswers:
    """`save` writes an answer that outlasts the session to settings; `notify` shows a text to the user.

    `user` is that of the process by default.
    """

    def __init__(
        self,
        save: Callable[[PermissionSuggestion], None] | None = None,
        notify: Callable[[str], None] = lambda _: None,
        user: UserEnvironment | None = None,
    ) -> None:
        self._user = user or get_user_environment()
        self.save = save
        self.notify = notify
        self.rules: dict[str, tuple[ToolPermissionRule, ...]] = {"allow": (), "ask": (), "deny": ()}
        self.directories: tuple[Path, ...] = ()
        self.version = 0
        self.updates: tuple[PermissionSuggestion, ...] = ()
        """All answers, in order."""
        self._listeners: tuple[Callable[[PermissionSuggestion], None], ...] = ()

    def subscribe(self, listener: Callable[[PermissionSuggestion], None]) -> None:
        """Call this with each new answer, so that agents in other processes receive it too."""
        self._listeners = (*self._listeners, listener)

    def add_answer(self, update: PermissionSuggestion) -> None:
        """Add an answer; a repeated answer changes nothing. Raises `SettingsError` for an invalid rule."""
        if update in self.updates:
            return
        match update:
            case AddPermissionRulesSuggestion(rules=rules, behavior=behavior):
                new = tuple(parse_permission_rule(str(rule), SESSION_SOURCE) for rule in rules)
                self.rules[behavior] = (*self.rules[behavior], *new)
            case AddDirectoriesPermissionSuggestion(directories=directories):
                self.directories = (
                    *self.directories,
                    *(Path(self._user.expand_home(each)) for each in directories),
                )
            case SetPermissionModeSuggestion():
                return  # each agent has its own mode
        self.version += 1
        self.updates = (*self.updates, update)
        for listener in self._listeners:
            listener(update)
