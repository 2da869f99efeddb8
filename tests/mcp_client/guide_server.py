"""A plain MCP server on stdio with instructions and resources: `guide_server.py JSON`.

`tools` is a list of names, `resources` maps addresses to texts, and `prompts` maps names to the names of
arguments. `gate` is a FIFO that the server reads before it answers `initialize`. `mute` is a list of methods
that it never answers, and `mark` a file that it creates when it starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
RESOURCES: dict[str, str] = OPTIONS.get("resources", {})
PROMPTS: dict[str, list[str]] = OPTIONS.get("prompts", {})


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            if gate := OPTIONS.get("gate"):
                Path(gate).read_text()
            capabilities = {"tools": {}, **({"resources": {}} if RESOURCES else {})}
            capabilities |= {"prompts": {}} if PROMPTS else {}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": {"name": "guide", "version": "1"},
                "instructions": OPTIONS.get("instructions", ""),
            }
        case "tools/list":
            names = OPTIONS.get("tools", ["look"])
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"called {params['name']}"}]}
        case "resources/list":
            return {"resources": [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in RESOURCES]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": RESOURCES[params["uri"]]}]}
        case "prompts/list":
            prompts = [
                {"name": name, "arguments": [{"name": each} for each in names]}
                for name, names in PROMPTS.items()
            ]
            return {"prompts": prompts}
        case "prompts/get":
            text = json.dumps(params.get("arguments", {}))
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        case "ping":
            return {}
    raise KeyError(method)


if mark := OPTIONS.get("mark"):
    Path(mark).touch()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or message["method"] in OPTIONS.get("mute", []):
        continue
    try:
        reply = {"result": answer(message["method"], message.get("params", {}))}
    except KeyError as error:
        reply = {"error": {"code": -32602, "message": f"There is no {error}"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
    sys.stdout.flush()
