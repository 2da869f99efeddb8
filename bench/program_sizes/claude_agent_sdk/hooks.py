"""A function that forbids commands before they run, and one that sees each result."""

import asyncio

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query


async def guard(event, tool_use_id, context):
    if "rm " in event["tool_input"].get("command", ""):
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "Nothing is deleted here.",
            }
        }
    return {}


async def log(event, tool_use_id, context):
    print(f"{event['tool_name']} finished")
    return {}


async def main() -> None:
    hooks = {
        "PreToolUse": [HookMatcher(matcher="Bash", hooks=[guard])],
        "PostToolUse": [HookMatcher(hooks=[log])],
    }
    options = ClaudeAgentOptions(hooks=hooks, allowed_tools=["Bash"])
    async for message in query(prompt="Clean up this directory.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main())
