"""The `/skills` and `/memory` commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import format_token_count, to_one_line
from shoal.surfaces.terminal.text_styles import BOLD, DIM, YELLOW, truncate_text

if TYPE_CHECKING:
    from shoal.surfaces.terminal.terminal_controller import TerminalController


def show_skills(controller: TerminalController) -> None:
    catalog = controller.session.skills
    all_skills = catalog.skills.all()
    if not all_skills and not catalog.skills.problems:
        controller.notices.write_note(
            "There are no skills here. To add one, create .claude/skills/NAME/SKILL.md."
        )
        return
    with controller.notices.open_notice_block() as write:
        for skill in all_skills:
            audience = "" if skill.for_model else ", only for you"
            write(f"  {skill.name:<18}", BOLD)
            write(
                f" {truncate_text(to_one_line(skill.description), 70)} ({skill.source.kind}{audience})\n", DIM
            )
        for problem in catalog.skills.problems:
            write(f"  {to_one_line(str(problem))}\n", YELLOW)


def show_instruction_files(controller: TerminalController) -> None:
    instructions = controller.session.instructions
    if not instructions.files and not instructions.notes:
        controller.notices.write_note("There is no instruction file here. Create CLAUDE.md or AGENTS.md.")
        return
    with controller.notices.open_notice_block() as write:
        for file in instructions.files:
            import_note = f", imported by {escape_filename(file.imported_by)}" if file.imported_by else ""
            write(f"  {escape_filename(file.path)}", BOLD)
            write(f"  {format_token_count(file.size)} characters{import_note}\n", DIM)
        for note in instructions.notes:
            write(f"  {to_one_line(note)}\n", YELLOW)
