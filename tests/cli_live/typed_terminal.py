"""The plain terminal in the process of a test: lines are typed into it, and its text is read."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from shoal.app.session.session import Session
from shoal.surfaces.cli.plain.input_prompt import (
    EscapePressed,
    ForeignKeyPressed,
    InputClosed,
    InterruptPressed,
    LineEntered,
    PromptInput,
    PromptWoken,
    ShiftTabPressed,
)
from shoal.surfaces.cli.plain.plain_terminal import PlainTerminalController
from shoal.surfaces.terminal.screen import PlainTerminalScreen
from shoal.surfaces.terminal.terminal_controller import TerminalOutcome

WAIT_SECONDS = 60


class WatchedText(io.StringIO):
    """Text that tells when it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.grown = asyncio.Event()

    def write(self, text: str) -> int:
        self.grown.set()
        return super().write(text)


class TypedPrompt:
    """An input prompt for a test that types; it keeps what the terminal sets."""

    echoes_input = False

    def __init__(self) -> None:
        self.inputs: asyncio.Queue[PromptInput] = asyncio.Queue()
        self.label = ""
        self.is_updated = asyncio.Event()
        self.draft = ""
        self.questions: list[str] = []
        self.is_question_open = False
        self.rows: Callable[[int], Sequence[str]] | None = None

    def open(self) -> None: ...

    def close(self) -> None: ...

    async def read_input(self) -> PromptInput:
        return await self.inputs.get()

    def wake_reader(self) -> None:
        self.inputs.put_nowait(PromptWoken())

    def set_status_rows(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        self.rows = rows

    def set_prompt_label(self, text: str) -> None:
        self.label = text
        self.is_updated.set()

    def begin_question(self, question: str) -> None:
        self.questions.append(question)
        self.is_question_open = True
        self.is_updated.set()

    def end_question(self) -> None:
        self.is_question_open = False

    def clear_input_line(self) -> None:
        self.draft = ""

    def prepend_to_draft(self, text: str) -> None:
        self.draft = text + self.draft


class TypedTerminal:
    """A session at the plain terminal."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.prompt = TypedPrompt()
        self._stream = WatchedText()
        self.controller = PlainTerminalController(session, PlainTerminalScreen(self._stream), self.prompt)
        self._seen = 0
        self.running: asyncio.Task[TerminalOutcome]

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def press(self, key: PromptInput) -> None:
        self.prompt.inputs.put_nowait(key)

    def type_line(self, text: str) -> None:
        self.press(LineEntered(text))

    def press_escape(self) -> None:
        self.press(EscapePressed())

    def press_shift_tab(self) -> None:
        self.press(ShiftTabPressed())

    def press_interrupt(self, line: str = "") -> None:
        self.press(InterruptPressed(line))

    def press_foreign_key(self, key: str) -> None:
        self.press(ForeignKeyPressed(key))

    async def wait_for(self, text: str) -> str:
        """Wait until new output contains the text; return the new output up to the end of its line."""
        async with self.limit_wait(text):
            while (found := self.text.find(text, self._seen)) < 0 or "\n" not in self.text[found:]:
                self._stream.grown.clear()
                await self._stream.grown.wait()
        end = self.text.index("\n", found) + 1
        new, self._seen = self.text[self._seen : end], end
        return new

    @asynccontextmanager
    async def limit_wait(self, text: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                yield
        except TimeoutError:
            raise AssertionError(f"no {text!r} after {self.text[self._seen :]!r}") from None

    async def run_prompt(self, line: str, text: str) -> str:
        """Type a prompt, and wait for the text and for the end of the turn."""
        new = await self.run_line(line, text)
        await self.wait_until_idle()
        return new

    async def wait_until_idle(self) -> None:
        async with self.limit_wait("end of the turn"):
            while self.controller.is_busy:
                self.prompt.is_updated.clear()
                await self.prompt.is_updated.wait()

    async def run_line(self, line: str, text: str) -> str:
        """Type a line and wait until new output contains the text."""
        self.type_line(line)
        return await self.wait_for(text)


@asynccontextmanager
async def open_typed_terminal(session: Session, first: str | None = None) -> AsyncIterator[TypedTerminal]:
    """Open the session at a terminal; leaving it presses Ctrl-D."""
    async with session, asyncio.TaskGroup() as tasks:
        terminal = TypedTerminal(session)
        terminal.running = tasks.create_task(terminal.controller.run_until_user_leaves(first))
        yield terminal
        terminal.press(InputClosed())
        await terminal.running
