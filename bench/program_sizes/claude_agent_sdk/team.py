"""Two agents with tasks in order. The lead's model arranges them; nothing is resumed after a crash."""

import asyncio

from claude_agent_sdk import AgentDefinition, AssistantMessage, ClaudeAgentOptions, ResultMessage, query

ana = AgentDefinition(description="Writes code.", prompt="You write Python code.")
ben = AgentDefinition(description="Reviews code.", prompt="You review code and fix what is wrong.")
PROMPT = """
Have ana write hello.txt until `grep -q hello hello.txt` succeeds.
Then have ben check hello.txt. Say "finished" at the end.
"""


async def main() -> None:
    options = ClaudeAgentOptions(agents={"ana": ana, "ben": ben}, permission_mode="acceptEdits")
    async for message in query(prompt=PROMPT, options=options):
        if isinstance(message, AssistantMessage):
            print(message.content)
        elif isinstance(message, ResultMessage):
            print(f"finished: {not message.is_error}, ${message.total_cost_usd}")


asyncio.run(main())
