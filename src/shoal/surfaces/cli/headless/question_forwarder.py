"""Forwarder of questions to the program that drives the run, which asks its user and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.app.session.session import Session
from shoal.app.session.session_changes import call_mcp_tool
from shoal.core.conversation.messages import TextBlock, ToolUseBlock
from shoal.core.conversation.tools import ToolOutput
from shoal.core.errors import ShoalError
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.surfaces.cli.headless.output_formats import StreamJsonOutputWriter
from shoal.wire.json_codec import decode_json
from shoal.wire.question_codec import parse_permission_suggestions
from shoal.wire.stream_input_codec import ControlResponseInputStreamLine
from shoal.wire.stream_output_codec import build_control_cancel_request, build_permission_request


class QuestionAlreadyAnsweredError(ShoalError):
    """Raised if another answer to this question came first; that answer stands."""

    def __init__(self, question: str) -> None:
        super().__init__(f"Question {question!r} was already answered.")


class DrivingProgramQuestionForwarder:
    """Sends one `can_use_tool` request for each open question. An answer from elsewhere cancels it."""

    def __init__(self, session: Session, output: StreamJsonOutputWriter) -> None:
        self._session = session
        self._broker = session.questions
        self._output = output
        self._open: dict[str, Question] = {}

    async def forward_questions(self) -> None:
        """Forward questions until canceled."""
        async with asyncio.TaskGroup() as group:
            async for question in self._broker.watch_questions():
                self._open[question.id] = question
                await self._output.send_session_state("requires_action")
                asking_agent = None if question.agent == LEAD_ID else question.agent
                line = build_permission_request(
                    question.id,
                    *_question_to_tool_call(question),
                    suggestions=_encode_suggestions(question),
                    agent=asking_agent,
                )
                await self._output.send_line(line)
                group.create_task(self._cancel_if_answered_elsewhere(question))

    def deliver_program_answer(self, response: ControlResponseInputStreamLine) -> None:
        """Pass on an answer. Raises `QuestionAlreadyAnsweredError` or `StateFileError` if it is not used."""
        question = self._open.pop(response.id, None)
        if question is None:
            late_question = self._broker.find_permission_question(response.id)
            answer = (
                DenyAnswer(reason="")
                if late_question is None
                else _parse_program_answer(late_question, response)
            )
            self._broker.submit_late_answer(response.id, answer)
        elif not self._broker.submit_answer(question.id, _parse_program_answer(question, response)):
            raise QuestionAlreadyAnsweredError(question.id)

    def deny_open_questions(self) -> None:
        """Deny the open questions: nobody will answer them."""
        self._broker.mark_unattended()
        for question in list(self._open.values()):
            denial = DenyAnswer(reason="The program that should have answered has disconnected.", by="policy")
            self._broker.submit_answer(question.id, denial)
        self._open.clear()

    async def _cancel_if_answered_elsewhere(self, question: Question) -> None:
        await self._broker.wait_for_answer(question.id)
        if self._open.pop(question.id, None) is not None:
            await self._output.send_line(build_control_cancel_request(question.id))
        if not self._open:
            is_working = self._session.is_busy or self._session.has_running_subagents
            await self._output.send_session_state("running" if is_working else "idle")


class McpToolQuestionForwarder:
    """Asks an MCP tool for the answer to each open question. Without a usable answer, the question is
    denied."""

    def __init__(self, session: Session, tool: str) -> None:
        self._session = session
        self._broker = session.questions
        self._tool = tool

    async def forward_questions(self) -> None:
        """Forward questions until canceled."""
        async with asyncio.TaskGroup() as group:
            async for question in self._broker.watch_questions():
                group.create_task(self._answer_question(question))

    async def _answer_question(self, question: Question) -> None:
        try:
            response = await self._call_tool(question)
        except ShoalError as error:
            response = ControlResponseInputStreamLine(id=question.id, error=str(error))
        self._broker.submit_answer(question.id, _parse_program_answer(question, response))

    async def _call_tool(self, question: Question) -> ControlResponseInputStreamLine:
        name, call_id, tool_input = _question_to_tool_call(question)
        arguments = {"tool_name": name, "input": tool_input, "tool_use_id": call_id}
        call = ToolUseBlock(id=question.id, name=self._tool, input=arguments)
        output = await call_mcp_tool(self._session, call)
        if output is None:
            reason = f"The permission prompt tool {self._tool} does not exist, so nobody could answer."
            return ControlResponseInputStreamLine(id=question.id, error=reason)
        text = _get_output_text(output)
        try:
            body = decode_json(text.encode())
        except ValueError:
            body = None
        if output.is_error or not isinstance(body, Mapping):
            reason = f"The permission prompt tool {self._tool} gave no usable answer: {text[:200]}"
            return ControlResponseInputStreamLine(id=question.id, error=reason)
        return ControlResponseInputStreamLine(id=question.id, body=body)


def _get_output_text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "\n".join(block.text for block in output.content if isinstance(block, TextBlock))


def _question_to_tool_call(question: Question) -> tuple[str, str, dict[str, Any]]:
    match question:
        case PermissionQuestion(tool=tool, tool_use_id=call, input=tool_input):
            return tool, call, tool_input
        case ChoiceQuestion(choices=choices):
            return "AskUserQuestion", question.id, {"questions": msgspec.to_builtins(choices)}
        case PlanApprovalQuestion(plan=plan):
            return "ExitPlanMode", question.id, {"plan": plan}


def _encode_suggestions(question: Question) -> tuple[Any, ...]:
    return msgspec.to_builtins(question.suggestions) if isinstance(question, PermissionQuestion) else ()


def _parse_program_answer(question: Question, response: ControlResponseInputStreamLine) -> Answer:
    body = response.body
    if response.error or body.get("behavior") != "allow":
        reason = response.error or str(body.get("message") or "The user said no.")
        return DenyAnswer(reason=reason, ends_turn=body.get("interrupt") is True)
    updated_input = body.get("updatedInput")
    match question:
        case PermissionQuestion(input=tool_input):
            return AllowAnswer(
                input=updated_input
                if isinstance(updated_input, dict) and updated_input != tool_input
                else None,
                updates=parse_permission_suggestions(body.get("updatedPermissions")),
            )
        case PlanApprovalQuestion(digest=digest):
            return PlanApprovedAnswer(digest=digest)
        case ChoiceQuestion():
            answers = updated_input.get("answers") if isinstance(updated_input, Mapping) else None
            if not isinstance(answers, Mapping):
                return DenyAnswer(reason="The answer contained no choice.")
            return ChoiceAnswer(answers={str(key): str(value) for key, value in answers.items()})
