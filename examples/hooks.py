"""Uses one function to block commands before they run, and another to see each result.

Try it: python examples/hooks.py
"""

import shoal


def guard(event: shoal.PreToolUseInput) -> shoal.HookDecision | None:
    if "rm " in event["tool_input"].get("command", ""):
        return shoal.HookDecision(blocked="Nothing is deleted here.")
    return None


def log(event: shoal.PostToolUseInput) -> None:
    print(f"{event['tool_name']} finished")


hooks: shoal.Hooks = {"PreToolUse": [("Bash", guard)], "PostToolUse": [log]}
print(shoal.run_sync("Clean up this directory.", hooks=hooks, allowed_tools=["Bash"]).text)
