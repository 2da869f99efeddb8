"""Panel of the mail of a run: sender, recipient, kind, and whether it was read."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from shoal.app.picture.letters import letter_key
from shoal.app.picture.mail_words import mail_words
from shoal.app.picture.rows import Frame, LetterRow
from shoal.core.names import LEAD_NAME, agent_name
from shoal.core.wording import clean, many, one_line
from shoal.surfaces.tui.panels.board_lines import moment, owner_part
from shoal.surfaces.tui.panels.cells import ASKS, MUTED, Part, cell, joined, line
from shoal.surfaces.tui.panels.dialogs import PickScreen, ReadScreen
from shoal.surfaces.tui.panels.list_panel import ListPanel
from shoal.surfaces.tui.panels.rows import Entry, Rows

MOST = 1_000
"""Latest mail messages that are listed; the mailboxes have all of them."""
_OLDER = "older letters"


class MailPanel(ListPanel):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "Only of one", show=False),
        Binding("u", "unread", "Only unread", show=False),
        Binding("escape", "leave", "Close", show=False),
    ]
    HINTS = "⏎ read whole · f of one member · u unread only · esc close"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._letters: dict[str, LetterRow] = {}
        """Rows as last drawn."""
        self._of = ""
        self._only_unread = False
        self._widest = 0
        """Widest sender and recipient of any row."""

    # Drawing

    def take(self, frame: Frame, *, anew: bool) -> None:
        if not frame.letters and not anew:
            return
        for row in frame.letters:
            key = letter_key(row.team, row.to, row.id)
            anew = anew or key not in self._letters or self._only_unread
            self._letters[key] = row
            self.rows.touch(key)
            if (wide := self._between(row).cell_length) > self._widest:
                self._widest = wide
                self.rows.touch_all()
        if anew:
            self._arrange()
        self._tell_sums()

    def _arrange(self) -> None:
        follows = self.rows.at_end
        held = {letter_key(row.team, row.to, row.id): row for row in self.picture.letters.values()}
        # Mail the run view dropped is dropped here too; mail it received since the last refresh is added.
        self._letters = {key: self._letters.get(key, row) for key, row in held.items()}
        shown = [key for key, row in held.items() if self._fits(row)]
        entries = [Entry(each) for each in shown[-MOST:]]
        if len(shown) > MOST or len(held) < self.picture.letters.in_all:
            self.rows.touch(_OLDER)
            entries.insert(0, Entry(_OLDER, chosen=False))
        self.rows.put_in_order(entries)
        if follows:
            self.rows.action_edge(-1)

    def _fits(self, row: LetterRow) -> bool:
        ours = not self._of or self._of in (row.sender, row.to)
        return ours and not (self._only_unread and row.taken)

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        if key == _OLDER:
            all_of_them = not self._of and not self._only_unread
            older = f"{self.picture.letters.in_all - MOST} " if all_of_them else ""
            return [line((f"… {older}older letters: shoal inbox shows them", MUTED))]
        row = self._letters[str(key)]
        kind = "" if row.kind == "message" else row.kind.replace("_", " ")
        head = [
            line(("●" if not row.taken else " ", ASKS)),
            line((moment(row.posted), MUTED)),
            cell(self._between(row), min(self._widest, width // 3)),
        ]
        words = one_line(row.text)
        if row.summary and width >= 100:
            words = f"{one_line(row.summary)}: {words}"
        said = line((f"[{kind}] " if kind else "", MUTED), (words, "bold" if not row.taken else ""))
        return [joined([*head, said]).truncate(width, ellipsis=True)]

    def _between(self, row: LetterRow) -> Content:
        return line(self._member(row.sender), (" → ", MUTED), self._member(row.to))

    def _member(self, name: str) -> Part:
        return owner_part(self.picture, name)

    def _tell_sums(self) -> None:
        sums = self.picture.letters
        unread = sums.unread
        parts: list[Part] = [("Mail", "bold"), (f"  {many(sums.in_all, 'letter')}", MUTED)]
        if unread:
            parts.append((f"  {unread} not read yet", ASKS))
        if self._of:
            parts += [("  only of ", MUTED), self._member(self._of)]
        if self._only_unread:
            parts.append(("  only unread", MUTED))
        if not self._letters:
            parts.append((": agents of a team write to each other, and it is shown here", MUTED))
        self.head(line(*parts))

    # Keys

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        message.stop()
        row = self._letters.get(str(message.key))
        if row is None:
            return

        async def work() -> str:
            text = await self._whole(row)
            await self.app.push_screen(ReadScreen(f"{row.sender} → {row.to}", self._told(row, text)))
            return ""

        self.attempt(work)

    async def _whole(self, row: LetterRow) -> str | None:
        """Read the whole text from the inbox; None if it is not there, or the team is gone."""
        if not (self.helm.run.home / "teams" / row.team).is_dir():
            return None
        history = await self.record.mailboxes(row.team).history(agent_name(row.to))
        return next((mail_words(mail) for mail in history if mail.id == row.id), None)

    def _told(self, row: LetterRow, text: str | None) -> Content:
        read = f"read {moment(row.taken)}" if row.taken else "not read yet"
        facts = [f"posted {moment(row.posted)}", read, row.kind.replace("_", " "), f"team {row.team}"]
        facts += ["for information: it wakes nobody"] if row.fyi else []
        lines = [line((" · ".join(facts), MUTED))]
        if row.summary:
            lines.append(line((one_line(row.summary), "bold")))
        lines += [Content(""), Content(clean(row.text if text is None else text))]
        if text is None:
            lines += [Content(""), line(("Only its beginning is kept: the inbox is gone.", MUTED))]
        return Content("\n").join(lines)

    def action_filter(self) -> None:
        names = dict.fromkeys(name for row in self._letters.values() for name in (row.sender, row.to))
        offered = [("", line(("everybody", MUTED)))]
        offered += [
            (name, line(self._member(name)))
            for name in sorted(names, key=lambda each: (each != LEAD_NAME, each))
        ]

        def picked(name: str | None) -> None:
            if name is not None:
                self._of = name
                self._arrange()
                self._tell_sums()

        self.app.push_screen(PickScreen("Whose mail?", offered), picked)

    def action_unread(self) -> None:
        self._only_unread = not self._only_unread
        self._arrange()
        self._tell_sums()
