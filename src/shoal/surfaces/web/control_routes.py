"""Routes that control a run: send a message, interrupt, stop, restart, answer a question."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from shoal.app.run_access.run_handle import RunHandle
from shoal.app.session.run_controller import RemoteRunController
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.permissions.questions import Answer, DenyAnswer, PlanApprovedAnswer
from shoal.surfaces.web.json_replies import (
    WebApiRequestRefusedError,
    build_json_reply,
    decode_request_body,
    get_path_param,
    read_bounded_request_body,
)
from shoal.surfaces.web.web_context import WebContext
from shoal.wire.control_codec import (
    InterruptTurnControlCommand,
    MoveAgentsToBackgroundControlCommand,
    RestartMemberControlCommand,
    RunControlCommand,
    SendUserTextControlCommand,
    SetPermissionModeControlCommand,
    ShutDownMemberControlCommand,
    StopAgentOrShellControlCommand,
    StopRunControlCommand,
)
from shoal.wire.question_codec import is_matching_answer_type, parse_answer


class SendMessageRequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: str
    text: str


class TargetAgentRequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent: str


class SetPermissionModeRequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: PermissionMode


class RunControlWebRoutes:
    """Requests that are forwarded to a live run."""

    def __init__(self, context: WebContext) -> None:
        self._runs = context.runs

    def _find_run(self, request: Request) -> RunHandle:
        return self._runs.find_run(get_path_param(request, "session"))

    async def send_message(self, request: Request) -> Response:
        run, send_request = (
            self._find_run(request),
            await decode_request_body(request, SendMessageRequestBody),
        )
        if not send_request.text.strip():
            raise WebApiRequestRefusedError(400, "The message is empty.")
        return await _send_command_and_reply(
            run, SendUserTextControlCommand(to=send_request.to, text=send_request.text)
        )

    async def interrupt_agent(self, request: Request) -> Response:
        run, agent = await self._find_target_agent(request)
        return await _send_command_and_reply(
            run, InterruptTurnControlCommand(task_id="" if agent == LEAD_ID else agent)
        )

    async def stop_agent(self, request: Request) -> Response:
        """Ask a teammate to shut down; end any other agent; stopping the lead ends the run."""
        run, agent = await self._find_target_agent(request)
        _, agent_facts = await self._runs.get_agent_summary(run, agent)
        if agent == LEAD_ID:
            return await _send_command_and_reply(run, StopRunControlCommand())
        return await _send_command_and_reply(
            run,
            ShutDownMemberControlCommand(name=agent_facts.name)
            if agent_facts.team
            else StopAgentOrShellControlCommand(task_id=agent),
        )

    async def kill_agent(self, request: Request) -> Response:
        run, agent = await self._find_target_agent(request)
        if agent == LEAD_ID:
            raise WebApiRequestRefusedError(400, "The lead cannot be killed. Stop it to end the run.")
        return await _send_command_and_reply(run, StopAgentOrShellControlCommand(task_id=agent))

    async def restart_agent(self, request: Request) -> Response:
        """Restart a teammate that is down."""
        run, agent = await self._find_target_agent(request)
        _, agent_facts = await self._runs.get_agent_summary(run, agent)
        return await _send_command_and_reply(run, RestartMemberControlCommand(name=agent_facts.name))

    async def move_agent_to_background(self, request: Request) -> Response:
        run, agent = await self._find_target_agent(request)
        return await _send_command_and_reply(run, MoveAgentsToBackgroundControlCommand(task_id=agent))

    async def set_permission_mode(self, request: Request) -> Response:
        run = self._find_run(request)
        return await _send_command_and_reply(
            run,
            SetPermissionModeControlCommand(
                mode=(await decode_request_body(request, SetPermissionModeRequestBody)).mode
            ),
        )

    async def answer_question(self, request: Request) -> Response:
        run, question_id = self._find_run(request), get_path_param(request, "question")
        answer = _decode_person_answer(await read_bounded_request_body(request))
        question = await asyncio.to_thread(lambda: run.open_questions().get(question_id))
        if question is None:
            raise WebApiRequestRefusedError(404, "This question does not exist. It may have been withdrawn.")
        if not is_matching_answer_type(answer, question):
            raise WebApiRequestRefusedError(400, "This answer has the wrong type for the question.")
        if not run.is_live:
            raise WebApiRequestRefusedError(
                409, "The run that asked this question has ended, so it cannot receive the answer."
            )
        controller = RemoteRunController(run)
        is_first = await asyncio.to_thread(controller.answer_question, question_id, answer)
        return build_json_reply({"stands": is_first})

    async def _find_target_agent(self, request: Request) -> tuple[RunHandle, str]:
        run, target = self._find_run(request), await decode_request_body(request, TargetAgentRequestBody)
        agent, _ = await self._runs.get_agent_summary(run, target.agent)
        return run, agent


def _decode_person_answer(raw: bytes) -> Answer:
    """Decode the answer and mark it as given by a person, whatever the page says."""
    try:
        answer = parse_answer(raw)
    except (ValueError, msgspec.DecodeError) as error:
        raise WebApiRequestRefusedError(400, f"Cannot parse the answer: {error}.") from error
    return replace(answer, by="person") if isinstance(answer, DenyAnswer | PlanApprovedAnswer) else answer


async def _send_command_and_reply(run: RunHandle, command: RunControlCommand) -> Response:
    command_result: Any = await RemoteRunController(run).send_command(command)
    return build_json_reply({"ok": True, **(command_result if isinstance(command_result, dict) else {})})
