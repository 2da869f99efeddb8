"""Permissions of a session: its rules, its initial mode, and the storage of a person's answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shoal.app.config.tool_selection import split_permission_rule_flags
from shoal.app.definitions.bundled_docs import find_bundled_docs_directory
from shoal.app.options import Options
from shoal.app.settings.live_settings import AutoReloadingSettings
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_writer import save_permission_answer
from shoal.core.errors import ShoalError
from shoal.core.permissions import PermissionSuggestion
from shoal.policy.permission_answers import RememberedPermissionAnswers
from shoal.policy.permission_engine import PermissionEngine
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session


def create_session_permissions(
    options: Options, settings: Settings, workspace: LocalWorkspace, directory: Path, session: Session
) -> PermissionEngine:
    live = AutoReloadingSettings(
        settings,
        cwd=workspace.root,
        given=options.settings,
        sources=options.setting_sources,
        allow=split_permission_rule_flags(options.allowed_tools),
        deny=split_permission_rule_flags(options.disallowed_tools),
        note=session.note,
    )
    mode = options.mode or settings.permissions.default_mode or "default"
    return PermissionEngine(
        workspace,
        mode="bypassPermissions" if options.skip_permissions else mode,
        rules=live,
        readable=[directory / "results", find_bundled_docs_directory()],
        home=settings.home,
        answers=_create_permission_answers(settings, workspace.root, session),
        can_bypass=options.skip_permissions or settings.permissions.default_mode == "bypassPermissions",
    )


def _create_permission_answers(
    settings: Settings, cwd: Path, session: Session
) -> RememberedPermissionAnswers:
    def store_permission_answer(update: PermissionSuggestion) -> None:
        try:
            if save_permission_answer(update, settings, cwd):
                return
            reason = "the settings of this project are not trusted. See `shoal trust --show`."
        except ShoalError as error:
            reason = str(error)
        session.note(f"It could not be kept, and holds for this session alone: {reason}")
        answers.add_answer(update)

    answers = RememberedPermissionAnswers(store_permission_answer, session.note)
    return answers
