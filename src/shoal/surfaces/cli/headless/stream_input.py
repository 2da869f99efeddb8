"""Prompts and control requests that a program sends on standard input during a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal.app.session.session import Session
from shoal.core.conversation.messages import Message, TextBlock
from shoal.core.errors import ShoalError
from shoal.core.events import AssistantReplied, Event, ModelRequestSent
from shoal.core.ids import LEAD_ID
from shoal.surfaces.cli.headless.control_requests import build_initialize_response, handle_control_request
from shoal.surfaces.cli.headless.driving_program import DrivingProgramConnection, DrivingProgramInputLine
from shoal.surfaces.cli.headless.output_formats import StreamJsonOutputWriter
from shoal.surfaces.cli.headless.question_forwarder import DrivingProgramQuestionForwarder
from shoal.surfaces.terminal.user_messages import join_names, print_user_message
from shoal.wire.stream_input_codec import (
    ControlRequestInputStreamLine,
    ControlResponseInputStreamLine,
    IgnoredInputStreamLine,
    InvalidInputStreamLineError,
    UserPromptInputStreamLine,
)
from shoal.wire.stream_output_codec import build_control_error_response, build_control_success_response


class StreamJsonInputReader:
    """Reads stdin in its own task; each prompt becomes a turn, or joins the running one.

    A prompt that arrives while tools run is given to the agent with their results. One that arrives while the
    model answers waits: if that answer ends the turn, the prompt gets its own turn and its own result.
    """

    def __init__(
        self,
        session: Session,
        output: StreamJsonOutputWriter,
        forwarder: DrivingProgramQuestionForwarder | None,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self._session = session
        session.expect_input()
        self._forwarder = forwarder
        self._output = output
        self._waiting: deque[UserPromptInputStreamLine] = deque()
        self._on_change = on_change
        self.is_closed = False
        """True if no further prompt will come."""
        self._in_tools = False
        self.bad_lines = 0

    async def process_input_lines(self, program: DrivingProgramConnection) -> None:
        """Read lines until the program disconnects."""
        while (line := await program.next_input_line()) is not None:
            await self._handle_input_line(line)
        self.close()

    def close(self) -> None:
        """Stop taking prompts."""
        self.is_closed = True
        self._session.expect_no_input()
        self._on_change()
        if self._forwarder is not None:
            self._forwarder.deny_open_questions()

    async def close_when_stopped(self) -> None:
        await self._session.stop_requested.wait()
        self._waiting.clear()
        self.close()

    @property
    def has_prompt_or_is_closed(self) -> bool:
        """True if a prompt waits, or if none will ever come."""
        return bool(self._waiting) or self.is_closed

    def take_prompt(self) -> Message | None:
        """Return the next prompt; None if nothing waits."""
        if withdrawn_prompts := self._session.withdraw_queued_prompts():
            return Message(
                role="user", content=tuple(block for each in withdrawn_prompts for block in each.content)
            )
        if not self._waiting:
            return None
        prompt = self._waiting.popleft()
        self._output.queue_replay(prompt.raw, self._session.assign_prompt_id(prompt.message, prompt.uuid))
        return prompt.message

    def track_lead_event(self, event: Event) -> None:
        match event:
            case AssistantReplied(tool_uses=calls, agent=agent) if agent == LEAD_ID:
                self._in_tools = calls > 0
                self._steer_waiting_prompts()
            case ModelRequestSent(agent=agent) if agent == LEAD_ID:
                self._in_tools = False
            case _:
                pass

    def mark_turn_ended(self) -> None:
        self._in_tools = False

    def _steer_waiting_prompts(self) -> None:
        # An assistant accepts a message at once, and reads it when its model has answered.
        can_steer = self._in_tools or (self._session.is_assistant and self._session.is_busy)
        while can_steer and self._waiting and self._can_steer(self._waiting[0].message):
            prompt = self._waiting.popleft()
            self._output.queue_replay(prompt.raw, prompt.uuid)
            self._session.steer(prompt.message.text)

    def _can_steer(self, message: Message) -> bool:
        """Return False for a command: it gets its own turn."""
        return _is_text_only(message) and not self._session.is_slash_command(message)

    async def _handle_input_line(self, line: DrivingProgramInputLine) -> None:
        match line.content:
            case UserPromptInputStreamLine(left_out=skipped) as prompt:
                if skipped:
                    print_user_message(
                        f"line {line.number} of stdin: ignored unknown fields: {join_names(skipped)}"
                    )
                self._waiting.append(prompt)
                self._steer_waiting_prompts()
                self._on_change()
            case ControlRequestInputStreamLine() as control_request:
                await self.answer_control_request(control_request)
            case ControlResponseInputStreamLine(id=question) as response:
                if self._forwarder is None:
                    print_user_message(
                        f"line {line.number} of stdin answers {question!r}, which is not an open question"
                    )
                    return
                try:
                    self._forwarder.deliver_program_answer(response)
                except ShoalError as error:
                    print_user_message(
                        f"line {line.number} of stdin answers {question!r}, which is not an open question: "
                        f"{error}"
                    )
            case InvalidInputStreamLineError() as error:
                self.bad_lines += 1
                print_user_message(f"line {line.number} of stdin is ignored: {error}")
            case IgnoredInputStreamLine():
                pass

    async def answer_control_request(self, control: ControlRequestInputStreamLine) -> None:
        try:
            line = build_control_success_response(
                control.id, await handle_control_request(self._session, control.subtype, control.body)
            )
        except ShoalError as error:
            line = build_control_error_response(control.id, str(error))
        await self._output.send_line(line)

    async def answer_initialize(self, initialize_request: ControlRequestInputStreamLine) -> None:
        """Answer the `initialize` request that the session was opened for."""
        await self._output.send_line(
            build_control_success_response(initialize_request.id, build_initialize_response(self._session))
        )


def _is_text_only(message: Message) -> bool:
    return all(isinstance(block, TextBlock) for block in message.content)
