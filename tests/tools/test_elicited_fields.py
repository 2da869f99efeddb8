"""Fields that a server asks for, and the time that a call of a server may take."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from shell_workbench import ShellWorkbench, open_workbench

from shoal.core.clock import SystemClock
from shoal.core.extensions.mcp_servers import McpServerConfig, McpStdioConfig
from shoal.core.permissions.questions import Answer, ChoiceAnswer, ChoiceQuestion, Question
from shoal.testing import FakeClock
from shoal.tools.mcp.client_context import MAX_DEADLINE_FACTOR, ActiveMcpCall, McpClientContext, McpTokenStore
from shoal.tools.mcp.managed_server import ManagedMcpServer

pytestmark = pytest.mark.needs("mcp")


class NumberingBroker:
    """A person who answers each question with its number."""

    async def ask_person_or_deny(self, question: Question) -> Answer:
        assert isinstance(question, ChoiceQuestion)
        answers = {choice.question: str(number) for number, choice in enumerate(question.choices)}
        return ChoiceAnswer(answers=answers)


def refuse_token_store(name: str, url: str) -> McpTokenStore:
    raise AssertionError


def make_server(workbench: ShellWorkbench) -> ManagedMcpServer:
    host = McpClientContext(
        processes=workbench.processes,
        clock=workbench.clock,
        root=workbench.project,
        env={},
        logs=workbench.project,
        deadline=10,
        note=workbench.notes.append,
        tokens=refuse_token_store,
    )
    server = McpServerConfig(name="s", connection=McpStdioConfig(command="none"), origin="a test")
    return ManagedMcpServer(server, host, lambda: None)


async def test_fields_with_the_same_text_have_separate_answers(tmp_path: Path) -> None:
    import mcp_types as types

    from shoal.tools.mcp.elicitation import handle_mcp_elicitation

    same = {"type": "string", "title": "Date"}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"start": same, "end": same, "place": {"type": "string"}},
    }
    async with open_workbench(tmp_path) as workbench, SystemClock().deadline(60) as deadline:
        workbench.question_broker = NumberingBroker()  # type: ignore[assignment]
        server = make_server(workbench)
        asked = types.ElicitRequestFormParams(message="When?", requested_schema=schema)
        # No agent is known that could ask.
        assert (await handle_mcp_elicitation(server, asked)).action == "decline"
        with server._track_call(
            ActiveMcpCall(context=workbench.create_context(), deadline=deadline, seconds=60, latest_end=1e12)
        ):
            result = await handle_mcp_elicitation(server, asked)
        assert (await handle_mcp_elicitation(server, asked)).action == "decline"
    assert result.content == {"start": "0", "end": "1", "place": "2"}


async def test_progress_extends_the_time_of_a_call_up_to_a_limit(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_workbench(tmp_path, clock) as workbench:
        server = make_server(workbench)
        server.status = "connected"
        server._connection = object()  # type: ignore[assignment]
        coming: asyncio.Future[ActiveMcpCall] = asyncio.get_running_loop().create_future()

        async def work(_: object, call: ActiveMcpCall) -> Any:
            coming.set_result(call)
            await asyncio.Event().wait()

        calling = asyncio.create_task(server.run_on_connection("it", workbench.create_context(), work))
        call = await coming
        for _ in range(2 * MAX_DEADLINE_FACTOR - 1):
            await clock.advance(5)
            assert not calling.done()
            call.extend_deadline()
        await clock.advance(5)
        output = await calling
    assert output.is_error
    assert "did not answer within 10 s" in str(output.content)
