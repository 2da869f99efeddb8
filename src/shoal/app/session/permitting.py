"""Permissions of a session: its rules, its initial mode, and the storage of a person's answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shoal.app.basis.toolbox import rules_in
from shoal.app.definitions.own_documents import documents_directory
from shoal.app.options import Options
from shoal.app.settings.keeping import keep_answer
from shoal.app.settings.live import LiveSettings
from shoal.app.settings.settings import Settings
from shoal.core.errors import ShoalError
from shoal.core.permissions import Suggestion
from shoal.policy.answers import SessionAnswers
from shoal.policy.permissions import RulePermissions
from shoal.workspaces.local import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session


def session_permissions(
    options: Options, settings: Settings, workspace: LocalWorkspace, directory: Path, session: Session
) -> RulePermissions:
    live = LiveSettings(
        settings,
        cwd=workspace.root,
        given=options.settings,
        sources=options.setting_sources,
        allow=rules_in(options.allowed_tools),
        deny=rules_in(options.disallowed_tools),
        note=session.note,
    )
    mode = options.mode or settings.permissions.default_mode or "default"
    return RulePermissions(
        workspace,
        mode="bypassPermissions" if options.skip_permissions else mode,
        standing=live,
        readable=[directory / "results", documents_directory()],
        home=settings.home,
        answers=_answers(settings, workspace.root, session),
        may_skip=options.skip_permissions or settings.permissions.default_mode == "bypassPermissions",
    )


def _answers(settings: Settings, cwd: Path, session: Session) -> SessionAnswers:
    def kept(update: Suggestion) -> None:
        try:
            if keep_answer(update, settings, cwd):
                return
            why = "the settings of this project are not trusted. See `shoal trust --show`."
        except ShoalError as error:
            why = str(error)
        session.note(f"It could not be kept, and holds for this session alone: {why}")
        answers.add(update)

    answers = SessionAnswers(kept, session.note)
    return answers
