"""SendMessage to any text: at worst a failed call, which ends nobody's turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from agent_scripts import call_tool, run_all_turns
from shoal.agent.tool_calls import execute_tool_calls
from shoal.core.conversation.messages import ToolResultBlock, ToolUseBlock
from team_scripts import open_session, script_team, spawn_member

PREFIXES = some.sampled_from(["", "uds:", "bridge:", "ann", "ann@", "@", "../", "team-lead", "*", "a" * 16])
ANY_TEXT = some.text(some.characters(), max_size=40) | some.text("a/.-@*:\0\n", min_size=200, max_size=400)
RECIPIENTS = some.builds(lambda prefix, text: prefix + text, PREFIXES, ANY_TEXT)
BODIES = some.text(some.characters(), min_size=1, max_size=20) | some.sampled_from(
    [{"type": "shutdown_request", "reason": "x"}, {"type": "fyi", "text": "x"}, {"type": "x"}, {}]
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=some.lists(some.tuples(RECIPIENTS, BODIES), min_size=1, max_size=25), has_team=some.booleans())
def test_a_message_to_any_text_is_at_worst_a_failed_call(
    tmp_path: Path, calls: list[tuple[str, object]], has_team: bool
) -> None:
    async def send_all() -> None:
        team = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann")] if has_team else []
        model = script_team(lead=[*team, "wait", "end"], ann=["ready"])
        async with open_session(tmp_path, model) as session, asyncio.timeout(60):
            await run_all_turns(session)
            for number, (to, message) in enumerate(calls):
                call = ToolUseBlock(
                    id=f"c{number}",
                    name="SendMessage",
                    input={"to": to, "message": message, "summary": to[:20] or "x"},
                )
                await execute_tool_calls(session.agent, [call])
                results = session.agent.conversation.messages[-1].content
                ids = [each.tool_use_id for each in results if isinstance(each, ToolResultBlock)]
                assert ids[-1] == call.id

    asyncio.run(send_all())
