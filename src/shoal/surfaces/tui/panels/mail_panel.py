"""Panel of the mail of a run: sender, recipient, kind, and whether it was read."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from shoal.app.run_view.mail_table import make_mail_row_key
from shoal.app.run_view.mail_text import format_mail
from shoal.app.run_view.view_rows import RunViewMailRow, ViewDelta
from shoal.core.names import LEAD_NAME, TeamName, map_to_inbox_name
from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes, to_one_line
from shoal.surfaces.tui.panels.board_lines import build_owner_part, format_time_of_day
from shoal.surfaces.tui.panels.cells import ASKS, MUTED, Part, build_clean_line, fit_cell, join_cells
from shoal.surfaces.tui.panels.dialogs import NamePickerScreen, ScrollableTextScreen
from shoal.surfaces.tui.panels.list_panel import ListPanel
from shoal.surfaces.tui.panels.row_list import RowEntry, RowList

MOST = 1_000
"""Number of latest mail messages listed; the mailboxes have all of them."""
_OLDER = "older messages"


class MailPanel(ListPanel):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "Filter by member", show=False),
        Binding("u", "unread", "Unread only", show=False),
        Binding("escape", "leave", "Close", show=False),
    ]
    HINTS = "⏎ read · f filter by member · u unread only · esc close"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._mail_rows: dict[str, RunViewMailRow] = {}
        """Rows as last drawn."""
        self._filter_member = ""
        self._only_unread = False
        self._widest = 0
        """Widest sender and recipient of any row."""

    # Drawing

    def apply_delta(self, delta: ViewDelta, *, is_first: bool) -> None:
        if not delta.letters and not is_first:
            return
        for row in delta.letters:
            key = make_mail_row_key(row.team, row.to, row.id)
            is_first = is_first or key not in self._mail_rows or self._only_unread
            self._mail_rows[key] = row
            self.rows.invalidate_row(key)
            if (route_width := self._format_mail_route(row).cell_length) > self._widest:
                self._widest = route_width
                self.rows.invalidate_all_rows()
        if is_first:
            self._arrange_rows()
        self._update_head()

    def _arrange_rows(self) -> None:
        is_following = self.rows.is_cursor_at_end
        rows_by_key = {
            make_mail_row_key(row.team, row.to, row.id): row for row in self.run_view.mail.values()
        }
        # Mail the run view dropped is dropped here too; mail it received since the last refresh is added.
        self._mail_rows = {key: self._mail_rows.get(key, row) for key, row in rows_by_key.items()}
        shown_keys = [key for key, row in rows_by_key.items() if self._matches_filter(row)]
        entries = [RowEntry(each) for each in shown_keys[-MOST:]]
        if len(shown_keys) > MOST or len(rows_by_key) < self.run_view.mail.total:
            self.rows.invalidate_row(_OLDER)
            entries.insert(0, RowEntry(_OLDER, selectable=False))
        self.rows.set_entries(entries)
        if is_following:
            self.rows.action_edge(-1)

    def _matches_filter(self, row: RunViewMailRow) -> bool:
        is_member_match = not self._filter_member or self._filter_member in (row.sender, row.to)
        return is_member_match and not (self._only_unread and row.taken)

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        if key == _OLDER:
            is_unfiltered = not self._filter_member and not self._only_unread
            older_count = f"{self.run_view.mail.total - MOST} " if is_unfiltered else ""
            return [build_clean_line((f"… {older_count}older messages: use shoal inbox", MUTED))]
        row = self._mail_rows[str(key)]
        kind = "" if row.kind == "message" else row.kind.replace("_", " ")
        head = [
            build_clean_line(("●" if not row.taken else " ", ASKS)),
            build_clean_line((format_time_of_day(row.posted), MUTED)),
            fit_cell(self._format_mail_route(row), min(self._widest, width // 3)),
        ]
        text = to_one_line(row.text)
        if row.summary and width >= 100:
            text = f"{to_one_line(row.summary)}: {text}"
        text_part = build_clean_line(
            (f"[{kind}] " if kind else "", MUTED), (text, "bold" if not row.taken else "")
        )
        return [join_cells([*head, text_part]).truncate(width, ellipsis=True)]

    def _format_mail_route(self, row: RunViewMailRow) -> Content:
        return build_clean_line(
            self._build_member_part(row.sender), (" → ", MUTED), self._build_member_part(row.to)
        )

    def _build_member_part(self, name: str) -> Part:
        return build_owner_part(self.run_view, name)

    def _update_head(self) -> None:
        mail_rows = self.run_view.mail
        unread = mail_rows.unread
        parts: list[Part] = [
            ("Mail", "bold"),
            (f"  {format_count_with_noun(mail_rows.total, 'message')}", MUTED),
        ]
        if unread:
            parts.append((f"  {unread} unread", ASKS))
        if self._filter_member:
            parts += [("  only of ", MUTED), self._build_member_part(self._filter_member)]
        if self._only_unread:
            parts.append(("  unread only", MUTED))
        if not self._mail_rows:
            parts.append((": mail between team members appears here", MUTED))
        self.set_panel_head(build_clean_line(*parts))

    # Keys

    def on_row_list_row_chosen(self, message: RowList.RowChosen) -> None:
        message.stop()
        row = self._mail_rows.get(str(message.key))
        if row is None:
            return

        async def show_mail() -> str:
            text = await self._read_full_mail_text(row)
            await self.app.push_screen(
                ScrollableTextScreen(f"{row.sender} → {row.to}", self._format_mail_details(row, text))
            )
            return ""

        self.run_action_in_background(show_mail)

    async def _read_full_mail_text(self, row: RunViewMailRow) -> str | None:
        """Read the whole text from the inbox; None if it is not there, or the team is gone."""
        store = self.board_and_mail_store
        if await store.rosters.read_team_roster(TeamName(row.team)) is None:
            return None
        history = await store.open_mailboxes(row.team).read_history(map_to_inbox_name(row.to))
        return next((format_mail(mail) for mail in history if mail.id == row.id), None)

    def _format_mail_details(self, row: RunViewMailRow, text: str | None) -> Content:
        read_note = f"read {format_time_of_day(row.taken)}" if row.taken else "unread"
        facts = [
            f"posted {format_time_of_day(row.posted)}",
            read_note,
            row.kind.replace("_", " "),
            f"team {row.team}",
        ]
        facts += ["FYI: it does not wake the recipient"] if row.fyi else []
        lines = [build_clean_line((" · ".join(facts), MUTED))]
        if row.summary:
            lines.append(build_clean_line((to_one_line(row.summary), "bold")))
        lines += [Content(""), Content(strip_terminal_codes(row.text if text is None else text))]
        if text is None:
            lines += [
                Content(""),
                build_clean_line(
                    ("The mailbox is gone, so only the beginning of this message is available.", MUTED)
                ),
            ]
        return Content("\n").join(lines)

    def action_filter(self) -> None:
        names = dict.fromkeys(name for row in self._mail_rows.values() for name in (row.sender, row.to))
        member_choices = [("", build_clean_line(("everybody", MUTED)))]
        member_choices += [
            (name, build_clean_line(self._build_member_part(name)))
            for name in sorted(names, key=lambda each: (each != LEAD_NAME, each))
        ]

        def filter_by_member(name: str | None) -> None:
            if name is not None:
                self._filter_member = name
                self._arrange_rows()
                self._update_head()

        self.app.push_screen(NamePickerScreen("Whose mail?", member_choices), filter_by_member)

    def action_unread(self) -> None:
        self._only_unread = not self._only_unread
        self._arrange_rows()
        self._update_head()
