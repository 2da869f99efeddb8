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

from shoal.core.wording import clean
from shoal.surfaces.terminal.history import append_history, read_history
from shoal.surfaces.tui.attaching import Pasted
from shoal.surfaces.tui.completing import Half, Proposal, half_typed

_NEW_LINE = ("shift+enter", "alt+enter", "ctrl+j", "ctrl+enter", "shift+\r", "ctrl+\r", "\r")
"""The last are Textual's names for Enter with a modifier as xterm and tmux send it (`\\e[27;2;13~`)."""
_ALT_ENTER = "\x1b\r"


def _tell_alt_enter_from_enter() -> None:
    """Register Alt+Enter: older terminals send Esc and Enter, which Textual reads as Enter alone."""
    known = cast("dict[str, object]", ANSI_SEQUENCES_KEYS)
    known.setdefault(_ALT_ENTER, (Keys.ControlJ,))


class Proposals(OptionList):
    """Proposals above the input line while a word can be completed; the line keeps the focus."""

    can_focus = False

    def offer(self, proposals: Sequence[Proposal]) -> None:
        self.clear_options()
        width = max((len(each.text) for each in proposals), default=0)
        for each in proposals:
            row = Text(no_wrap=True, overflow="ellipsis")
            row.append(f"{each.text:<{min(width, 40)}}", "bold")
            row.append(f"  {each.about}", "dim")
            self.add_option(Option(row))
        self.highlighted = 0 if proposals else None
        self.display = bool(proposals)


class Composer(TextArea):
    """The input line; `TextEntered` carries the whole text."""

    class Entered(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        history: Path,
        proposals: Proposals,
        propose: Callable[[Half], Sequence[Proposal]],
    ) -> None:
        _tell_alt_enter_from_enter()
        super().__init__(
            id="composer",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Say what is to be done. / for commands, @ for files",
        )
        self._history_file = history
        self._history = read_history(history)
        self._recalled = len(self._history)
        self._draft = ""
        self._proposals = proposals
        self._propose = propose
        self._offered: Sequence[Proposal] = ()
        self._half: Half | None = None
        self._looked_at: tuple[str, tuple[int, int]] = ("", (0, 0))
        self._has_chosen = False
        """True if the person chose a proposal with an arrow key."""
        self._pasted = Pasted()
        self._typed_at = float("-inf")
        self.asking = False
        """True while the input answers a question of the program and is not added to the history."""

    # Keys

    @property
    def quiet_for(self) -> float:
        """Seconds since the last key press."""
        return monotonic() - self._typed_at

    async def _on_key(self, event: events.Key) -> None:
        self._typed_at = monotonic()
        # Keys may arrive before the change event of the previous key.
        if event.key in ("enter", "tab") and self._looked_at != (self.text, self.cursor_location):
            self.look_for_proposals()
        if self._offered and self._choose(event):
            return
        if event.key in _NEW_LINE:
            self._take_key(event)
            self.insert("\n")
        elif event.key == "enter":
            self._take_key(event)
            self._enter()
        elif event.key == "tab":
            self._take_key(event)
        else:
            await super()._on_key(event)

    def _choose(self, event: events.Key) -> bool:
        """Handle a key that controls the proposals; return False for any other key."""
        match event.key:
            case "up":
                self._has_chosen = True
                self._proposals.action_cursor_up()
            case "down":
                self._has_chosen = True
                self._proposals.action_cursor_down()
            case "tab":
                self._take(self._chosen())
            case "enter":
                chosen, half = self._chosen(), self._half
                assert half is not None
                whole = half.typed if half.kind == "command" else f"@{half.typed}"
                if not self._has_chosen and any(each.text == whole for each in self._offered):
                    return False
                self._take(chosen)
                if half.kind == "command":
                    self._enter()
            case "escape":
                self._withdraw()
            case _:
                return False
        self._take_key(event)
        return True

    def _take_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()

    def action_cursor_up(self, select: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is overridden
        if select or self.cursor_location[0] > 0 or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        if select or self.cursor_location[0] < self.document.line_count - 1 or not self._recall(1):
            super().action_cursor_down(select)

    def action_cursor_page_up(self) -> None:
        self.app.action_scroll(-1)  # type: ignore[attr-defined]

    def action_cursor_page_down(self) -> None:
        self.app.action_scroll(1)  # type: ignore[attr-defined]

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        result = self.replace(self._pasted.fold(text), *self.selection)
        self.move_cursor(result.end_location)

    # The text

    def put(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    @property
    def whole(self) -> str:
        """The text with its pasted texts unfolded."""
        return self._pasted.unfolded(self.text)

    def clear_line(self) -> None:
        self.put("")
        self._pasted.forget()

    def _enter(self) -> None:
        text = self.text
        if text.endswith("\\") and self.cursor_location == self.document.end:
            self.put(text[:-1] + "\n")
            return
        whole = self.whole
        # While an answer is asked for, the draft keeps its pasted texts.
        self.put("") if self.asking else self.clear_line()
        self._withdraw()
        if not self.asking:
            self._remember(whole)
        self.post_message(self.Entered(whole))

    def _remember(self, text: str) -> None:
        if text.strip() and self._history[-1:] != [text]:
            self._history.append(text)
            append_history(self._history_file, text)
        self._recalled = len(self._history)

    def _recall(self, step: int) -> bool:
        wanted = self._recalled + step
        if not 0 <= wanted <= len(self._history):
            return False
        if self._recalled == len(self._history):
            self._draft = self.text
        self._recalled = wanted
        self.put(self._draft if wanted == len(self._history) else self._pasted.fold(self._history[wanted]))
        if step < 0:
            self.move_cursor((0, len(self.document.get_line(0))))
        return True

    # Completion

    def on_text_area_changed(self) -> None:
        if self._looked_at != (self.text, self.cursor_location):
            self.look_for_proposals()

    def look_for_proposals(self) -> None:
        row, column = self.cursor_location
        self._looked_at, self._has_chosen = (self.text, (row, column)), False
        before = self.document.get_line(row)[:column]
        half = None if self.asking else half_typed(before, first_line=row == 0)
        offered = self._propose(half) if half is not None and self._recalled == len(self._history) else ()
        if half is not None and half.kind == "command" and any(each.text == half.typed for each in offered):
            offered = [each for each in offered if each.text.startswith(half.typed)]
        self._half, self._offered = half, offered
        self._proposals.offer(offered)

    def _withdraw(self) -> None:
        self._offered = ()
        self._proposals.offer(())

    def _chosen(self) -> Proposal:
        return self._offered[self._proposals.highlighted or 0]

    def _take(self, proposal: Proposal) -> None:
        half = self._half
        assert half is not None
        row, column = self.cursor_location
        goes_on = proposal.text.endswith("/")
        text = proposal.text if goes_on else f"{proposal.text} "
        result = self.replace(text, (row, half.begin), (row, column))
        self.move_cursor(result.end_location)
        if not goes_on:
            self._withdraw()
