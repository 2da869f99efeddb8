"""Prompts and control requests that a program sends on standard input during a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal.app.session.commanding import names_command
from shoal.app.session.session import Session
from shoal.core.errors import ShoalError
from shoal.core.events import AssistantSaid, Event, RequestSent
from shoal.core.ids import LEAD
from shoal.core.messages import Message, Text
from shoal.surfaces.cli.headless.control_requests import beginning, carry_out
from shoal.surfaces.cli.headless.driving import DrivingProgram, Said
from shoal.surfaces.cli.headless.output import StreamOutput
from shoal.surfaces.cli.headless.prompting import Prompting
from shoal.surfaces.terminal.sentences import named, say
from shoal.wire.stream_incoming import BadLine, Control, Other, Prompt, Responded
from shoal.wire.stream_json import answered, refused


class StreamInput:
    """Reads stdin in its own task; each prompt becomes a turn, or joins the running one.

    A prompt that arrives while tools run is given to the agent with their results. One that arrives while the
    model answers waits: if that answer ends the turn, the prompt gets its own turn and its own result.
    """

    def __init__(
        self,
        session: Session,
        output: StreamOutput,
        prompting: Prompting | None,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._session = session
        self._session.expects_people = True
        self._prompting = prompting
        self._output = output
        self._waiting: deque[Message] = deque()
        self._changed = changed
        self.closed = False
        """True if no further prompt will come."""
        self._in_tools = False
        self.bad_lines = 0

    async def read(self, program: DrivingProgram) -> None:
        """Read lines until the program hangs up."""
        while (said := await program.next()) is not None:
            await self._take(said)
        self.close()

    def close(self) -> None:
        """Stop taking prompts."""
        self.closed = True
        self._session.expects_people = False
        self._changed()
        if self._prompting is not None:
            self._prompting.hang_up()

    async def close_when_stopped(self) -> None:
        await self._session.stopping.wait()
        self._waiting.clear()
        self.close()

    @property
    def ready(self) -> bool:
        """True if a prompt waits, or if none will ever come."""
        return bool(self._waiting) or self.closed

    def take(self) -> Message | None:
        """Return the next prompt; None if nothing waits."""
        if late := self._session.unheard():
            return Message(role="user", content=tuple(block for each in late for block in each.content))
        return self._waiting.popleft() if self._waiting else None

    def hear(self, event: Event) -> None:
        match event:
            case AssistantSaid(tool_uses=calls, agent=agent) if agent == LEAD:
                self._in_tools = calls > 0
                self._steer()
            case RequestSent(agent=agent) if agent == LEAD:
                self._in_tools = False
            case _:
                pass

    def ended(self) -> None:
        self._in_tools = False

    def _steer(self) -> None:
        # An assistant accepts a message at once, and reads it when its model has answered.
        hears = self._in_tools or (self._session.parts.assistant and self._session.busy)
        while hears and self._waiting and self._can_steer(self._waiting[0]):
            self._session.steer(self._waiting.popleft().text)

    def _can_steer(self, message: Message) -> bool:
        """Return False for a command: it gets its own turn."""
        return _is_text(message) and not names_command(self._session.parts, message)

    async def _take(self, said: Said) -> None:
        match said.what:
            case Prompt(message=message, left_out=left_out):
                if left_out:
                    say(f"line {said.number} of stdin: left out, as not known here: {named(left_out)}")
                self._waiting.append(message)
                self._steer()
                self._changed()
            case Control() as control:
                await self.obey(control)
            case Responded(id=question) as response:
                if self._prompting is None:
                    say(f"line {said.number} of stdin answers {question!r}, which is not open")
                    return
                try:
                    self._prompting.answer(response)
                except ShoalError as error:
                    say(f"line {said.number} of stdin answers {question!r}, which is not open: {error}")
            case BadLine() as error:
                self.bad_lines += 1
                say(f"line {said.number} of stdin is ignored: {error}")
            case Other():
                pass

    async def obey(self, control: Control) -> None:
        try:
            line = answered(control.id, await carry_out(self._session, control.subtype, control.body))
        except ShoalError as error:
            line = refused(control.id, str(error))
        await self._output.send(line)

    async def welcome(self, opening: Control) -> None:
        """Answer the `initialize` request that the session was opened for."""
        await self._output.send(answered(opening.id, beginning(self._session)))


def _is_text(message: Message) -> bool:
    return all(isinstance(block, Text) for block in message.content)
