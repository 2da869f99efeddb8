"""The `/skills` and `/memory` commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.filenames import shown
from shoal.core.wording import count, one_line
from shoal.surfaces.terminal.paint import BOLD, DIM, YELLOW, cut

if TYPE_CHECKING:
    from shoal.surfaces.terminal.dialogue import Dialogue


def skills(talk: Dialogue) -> None:
    found = talk.session.parts.knowledge.skills
    every = found.skills.all()
    if not every and not found.skills.problems:
        talk.telling.note("There is no skill here. They stand in .claude/skills/NAME/SKILL.md.")
        return
    with talk.telling.aside() as write:
        for skill in every:
            who = "" if skill.for_model else ", for you alone"
            write(f"  {skill.name:<18}", BOLD)
            write(f" {cut(one_line(skill.description), 70)} ({skill.source.kind}{who})\n", DIM)
        for problem in found.skills.problems:
            write(f"  {one_line(str(problem))}\n", YELLOW)


def memory(talk: Dialogue) -> None:
    told = talk.session.parts.knowledge.instructions
    if not told.files and not told.notes:
        talk.telling.note("No file tells agents how to work here. CLAUDE.md or AGENTS.md would.")
        return
    with talk.telling.aside() as write:
        for file in told.files:
            by = f", imported by {shown(file.imported_by)}" if file.imported_by else ""
            write(f"  {shown(file.path)}", BOLD)
            write(f"  {count(file.size)} characters{by}\n", DIM)
        for note in told.notes:
            write(f"  {one_line(note)}\n", YELLOW)
