"""Prompts and control requests that a program sends on standard input while the run goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, get_args

from shoal.app.commanding import names_command
from shoal.app.session import Session
from shoal.core.decisions import Mode
from shoal.core.definitions import INHERIT, Definition
from shoal.core.errors import ShoalError
from shoal.core.events import AssistantSaid, Event, RequestSent
from shoal.core.ids import LEAD
from shoal.core.messages import Message, Text
from shoal.core.skills import Skill, TypedPrompt
from shoal.surfaces.cli import stdin
from shoal.surfaces.cli.output import StreamOutput
from shoal.surfaces.cli.prompting import Prompting
from shoal.surfaces.cli.sentences import named, say
from shoal.wire.stream_json import BadLine, Control, Other, Prompt, Responded, answered, incoming, refused

REQUESTS = (
    "initialize",
    "interrupt",
    "set_permission_mode",
    "set_model",
    "set_delegate",
    "stop_task",
    "background_task",
)


class StreamInput:
    """Reads stdin in a task of its own; each prompt becomes a turn, or joins the running one.

    A prompt that comes while tools run is given to the agent with their results. One that comes while the
    model answers waits: if that answer ends the turn, the prompt gets a turn and a result of its own.
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
        self._prompting = prompting
        self._output = output
        self._waiting: deque[Message] = deque()
        self._changed = changed
        self.closed = False
        """No further prompt will come."""
        self._in_tools = False
        self._line = 0
        self.bad_lines = 0

    async def read(self) -> None:
        """Until stdin is closed."""
        async for line in stdin.lines():
            self._line += 1
            if line.strip():
                await self._take(line)
        self.close()

    def close(self) -> None:
        """No further prompt is taken."""
        self.closed = True
        self._changed()
        if self._prompting is not None:
            self._prompting.hang_up()

    async def close_when_stopped(self) -> None:
        await self._session.stopping.wait()
        self._waiting.clear()
        self.close()

    @property
    def ready(self) -> bool:
        """Whether there is something to do next, or will never be."""
        return bool(self._waiting) or self.closed

    def take(self) -> Message | None:
        """What to do next; None when nothing waits."""
        if late := self._session.unheard():
            return Message(role="user", content=tuple(Text(text=text) for text in late))
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
        # An assistant takes what is said at once, and hears it when its model has answered.
        hears = self._in_tools or (self._session.parts.assistant and self._session.busy)
        while hears and self._waiting and self._can_steer(self._waiting[0]):
            self._session.steer(self._waiting.popleft().text)

    def _can_steer(self, message: Message) -> bool:
        """A command gets a turn of its own."""
        return _is_text(message) and not names_command(self._session.parts, message)

    async def _take(self, line: bytes) -> None:
        try:
            match incoming(line):
                case Prompt(message=message, left_out=left_out):
                    if left_out:
                        say(f"line {self._line} of stdin: left out, as not known here: {named(left_out)}")
                    self._waiting.append(message)
                    self._steer()
                    self._changed()
                case Control() as control:
                    await self._output.send(await self._answer(control))
                case Responded(id=question) as response:
                    if self._prompting is None or not self._prompting.answer(response):
                        say(f"line {self._line} of stdin answers {question!r}, which is not open")
                case Other():
                    pass
        except BadLine as error:
            self.bad_lines += 1
            say(f"line {self._line} of stdin is ignored: {error}")

    async def _answer(self, control: Control) -> dict[str, Any]:
        try:
            return answered(control.id, await self._done(control.subtype, control.body))
        except ShoalError as error:
            return refused(control.id, str(error))

    async def _done(self, subtype: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        match subtype:
            case "initialize":
                agents = [_agent(definition) for definition in self._session.parts.definitions.all()]
                commands = [_command(each) for each in self._session.parts.knowledge.commands()]
                return {"commands": commands, "agents": agents, "output_style": "default", "account": {}}
            case "interrupt":
                await self._session.interrupt()
            case "set_permission_mode":
                self._session.set_mode(_mode(body.get("mode")))
            case "set_model":
                await self._session.set_model(_model(body.get("model")))
            case "set_delegate":
                self._session.delegate(on=_switch(body.get("on")))
            case "stop_task":
                await self._session.stop_task(_task(body.get("task_id")))
            case "background_task":
                task = body.get("task_id")
                moved = self._session.move_to_background(None if task is None else _task(task))
                return {"moved": list(moved)}
            case _:
                raise BadLine(f"{subtype!r} is not a request known here; known are {named(REQUESTS)}")
        return None


def _task(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadLine('it needs "task_id": the id of an agent or of a background shell')
    return name


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadLine('set_delegate needs "on": true or false')
    return value


def _model(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadLine('set_model needs "model": a name')
    return name


def _agent(definition: Definition) -> dict[str, str]:
    model = definition.model or INHERIT
    return {"name": definition.name, "description": definition.description, "model": model}


def _command(command: Skill | TypedPrompt) -> dict[str, str]:
    return {
        "name": command.name,
        "description": command.description,
        "argumentHint": command.argument_hint,
    }


def _mode(name: object) -> Mode:
    known: tuple[Mode, ...] = get_args(Mode)
    for mode in known:
        if mode == name:
            return mode
    raise BadLine(f"{name!r} is not a permission mode; they are {named(known)}")


def _is_text(message: Message) -> bool:
    return all(isinstance(block, Text) for block in message.content)
