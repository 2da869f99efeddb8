"""Input line of the full screen: several lines, history, completion, and folded pasted texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import cast

from rich.text import Text
from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import Keys
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from shoal.surfaces.terminal.prompt_history import append_prompt_history, read_prompt_history
from shoal.surfaces.tui.attachments import PastedTextPlaceholders
from shoal.surfaces.tui.completions import InputCompletionProposal, PartialWordAtCursor, find_partial_word
from shoal.surfaces.tui.paste_fields import clean_pasted_text

_NEW_LINE = ("shift+enter", "alt+enter", "ctrl+j", "ctrl+enter", "shift+\r", "ctrl+\r", "\r")
"""The last ones are Textual's names for Enter with a modifier, as sent by xterm and tmux (`\\e[27;2;13~`)."""
_ALT_ENTER = "\x1b\r"


def _register_alt_enter() -> None:
    """Register Alt+Enter: older terminals send Esc and Enter, which Textual reads as Enter alone."""
    key_sequences = cast("dict[str, object]", ANSI_SEQUENCES_KEYS)
    key_sequences.setdefault(_ALT_ENTER, (Keys.ControlJ,))


class ProposalList(OptionList):
    """Proposals above the input line while a word can be completed; the line keeps the focus."""

    can_focus = False

    def show_proposals(self, proposals: Sequence[InputCompletionProposal]) -> None:
        self.clear_options()
        width = max((len(each.text) for each in proposals), default=0)
        for proposal in proposals:
            row = Text(no_wrap=True, overflow="ellipsis")
            row.append(f"{proposal.text:<{min(width, 40)}}", "bold")
            row.append(f"  {proposal.description}", "dim")
            self.add_option(Option(row))
        self.highlighted = 0 if proposals else None
        self.display = bool(proposals)


class Composer(TextArea):
    """The input line; `TextEntered` carries the whole text."""

    class TextEntered(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        history: Path,
        proposals: ProposalList,
        propose: Callable[[PartialWordAtCursor], Sequence[InputCompletionProposal]],
    ) -> None:
        _register_alt_enter()
        super().__init__(
            id="composer",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Describe what to do. / for commands, @ for files",
        )
        self._history_file = history
        self._history = read_prompt_history(history)
        self._history_index = len(self._history)
        self._draft = ""
        self._proposals = proposals
        self._propose = propose
        self._shown_proposals: Sequence[InputCompletionProposal] = ()
        self._partial_word: PartialWordAtCursor | None = None
        self._proposals_for: tuple[str, tuple[int, int]] = ("", (0, 0))
        self._has_chosen = False
        """True if the user chose a suggestion with an arrow key."""
        self._pasted_texts = PastedTextPlaceholders()
        self._typed_at = float("-inf")
        self.is_asking = False
        """True while the input answers one of the program's questions; such input is not added to the
        history."""

    # Keys

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last key press."""
        return monotonic() - self._typed_at

    async def _on_key(self, event: events.Key) -> None:
        self._typed_at = monotonic()
        # Keys may arrive before the change event of the previous key.
        if event.key in ("enter", "tab") and self._proposals_for != (self.text, self.cursor_location):
            self.update_proposals()
        if self._shown_proposals and self._handle_proposal_key(event):
            return
        if event.key in _NEW_LINE:
            self._consume_key(event)
            self.insert("\n")
        elif event.key == "enter":
            self._consume_key(event)
            self._submit_text()
        elif event.key == "tab":
            self._consume_key(event)
        elif event.key.startswith("alt+"):
            # A terminal sends the letter too; it is a shortcut, not text.
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _handle_proposal_key(self, event: events.Key) -> bool:
        """Handle a key that controls the proposals; return False for any other key."""
        match event.key:
            case "up":
                self._has_chosen = True
                self._proposals.action_cursor_up()
            case "down":
                self._has_chosen = True
                self._proposals.action_cursor_down()
            case "tab":
                self._insert_proposal(self._get_chosen_proposal())
            case "enter":
                proposal, partial_word = self._get_chosen_proposal(), self._partial_word
                assert partial_word is not None
                typed_text = (
                    partial_word.typed if partial_word.kind == "command" else f"@{partial_word.typed}"
                )
                if not self._has_chosen and any(each.text == typed_text for each in self._shown_proposals):
                    return False
                self._insert_proposal(proposal)
                if partial_word.kind == "command":
                    self._submit_text()
            case "escape":
                self._hide_proposals()
            case _:
                return False
        self._consume_key(event)
        return True

    def _consume_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()

    def action_cursor_up(self, select: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is overridden
        if select or self.cursor_location[0] > 0 or not self._recall_history(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        if select or self.cursor_location[0] < self.document.line_count - 1 or not self._recall_history(1):
            super().action_cursor_down(select)

    def action_cursor_page_up(self) -> None:
        self.app.action_scroll(-1)  # type: ignore[attr-defined]

    def action_cursor_page_down(self) -> None:
        self.app.action_scroll(1)  # type: ignore[attr-defined]

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = clean_pasted_text(event.text)
        result = self.replace(self._pasted_texts.fold_into_placeholder(text), *self.selection)
        self.move_cursor(result.end_location)

    # The text

    def set_text(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    @property
    def full_text(self) -> str:
        """The text with its pasted texts unfolded."""
        return self._pasted_texts.unfold_placeholders(self.text)

    def clear_line(self) -> None:
        self.set_text("")
        self._pasted_texts.clear()

    def _submit_text(self) -> None:
        text = self.text
        if text.endswith("\\") and self.cursor_location == self.document.end:
            self.set_text(text[:-1] + "\n")
            return
        full_text = self.full_text
        # While an answer is asked for, the draft keeps its pasted texts.
        self.set_text("") if self.is_asking else self.clear_line()
        self._hide_proposals()
        if not self.is_asking:
            self._add_to_history(full_text)
        self.post_message(self.TextEntered(full_text))

    def _add_to_history(self, text: str) -> None:
        if text.strip() and self._history[-1:] != [text]:
            self._history.append(text)
            append_prompt_history(self._history_file, text)
        self._history_index = len(self._history)

    def _recall_history(self, step: int) -> bool:
        new_index = self._history_index + step
        if not 0 <= new_index <= len(self._history):
            return False
        if self._history_index == len(self._history):
            self._draft = self.text
        self._history_index = new_index
        self.set_text(
            self._draft
            if new_index == len(self._history)
            else self._pasted_texts.fold_into_placeholder(self._history[new_index])
        )
        if step < 0:
            self.move_cursor((0, len(self.document.get_line(0))))
        return True

    # Completion

    def on_text_area_changed(self) -> None:
        if self._proposals_for != (self.text, self.cursor_location):
            self.update_proposals()

    def update_proposals(self) -> None:
        row, column = self.cursor_location
        self._proposals_for, self._has_chosen = (self.text, (row, column)), False
        text_before = self.document.get_line(row)[:column]
        partial_word = None if self.is_asking else find_partial_word(text_before, first_line=row == 0)
        proposals = (
            self._propose(partial_word)
            if partial_word is not None and self._history_index == len(self._history)
            else ()
        )
        if (
            partial_word is not None
            and partial_word.kind == "command"
            and any(each.text == partial_word.typed for each in proposals)
        ):
            proposals = [each for each in proposals if each.text.startswith(partial_word.typed)]
        self._partial_word, self._shown_proposals = partial_word, proposals
        self._proposals.show_proposals(proposals)

    def _hide_proposals(self) -> None:
        self._shown_proposals = ()
        self._proposals.show_proposals(())

    def _get_chosen_proposal(self) -> InputCompletionProposal:
        return self._shown_proposals[self._proposals.highlighted or 0]

    def _insert_proposal(self, proposal: InputCompletionProposal) -> None:
        partial_word = self._partial_word
        assert partial_word is not None
        row, column = self.cursor_location
        is_directory = proposal.text.endswith("/")
        text = proposal.text if is_directory else f"{proposal.text} "
        result = self.replace(text, (row, partial_word.start), (row, column))
        self.move_cursor(result.end_location)
        if not is_directory:
            self._hide_proposals()
