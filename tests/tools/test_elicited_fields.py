"""Fields that a server asks for: each has an answer of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shell_workbench import open_workbench

from shoal.core.clock import SystemClock
from shoal.core.extensions.mcp_servers import McpServerConfig, McpStdioConfig
from shoal.core.permissions.questions import Answer, ChoiceAnswer, ChoiceQuestion, Question
from shoal.tools.mcp.client_context import ActiveMcpCall, McpClientContext, McpTokenStore
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
        host = McpClientContext(
            processes=workbench.processes,
            clock=workbench.clock,
            root=tmp_path,
            env={},
            logs=tmp_path,
            deadline=60,
            note=workbench.notes.append,
            tokens=refuse_token_store,
        )
        server = McpServerConfig(name="s", connection=McpStdioConfig(command="none"), origin="a test")
        life = ManagedMcpServer(server, host, lambda: None)
        asked = types.ElicitRequestFormParams(message="When?", requested_schema=schema)
        with life._track_call(
            ActiveMcpCall(context=workbench.create_context(), deadline=deadline, seconds=60, latest_end=1e12)
        ):
            result = await handle_mcp_elicitation(life, asked)
    assert result.content == {"start": "0", "end": "1", "place": "2"}
