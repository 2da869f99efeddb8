"""An MCP server whose tool answers permission questions, and logs them to the file it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

server = MCPServer("gate")


@server.tool()
def approve(tool_name: str, input: dict[str, Any], tool_use_id: str = "") -> str:  # noqa: A002 - the client names it
    """Answer a permission question."""
    with Path(sys.argv[1]).open("a") as log:
        log.write(json.dumps([tool_name, input]) + "\n")
    if input["command"].startswith("touch broken"):
        return "perhaps"
    if input["command"].startswith("touch no"):
        return json.dumps({"behavior": "deny", "message": "not on Sundays"})
    return json.dumps({"behavior": "allow", "updatedInput": {"command": f"{input['command']}-checked"}})


server.run()
