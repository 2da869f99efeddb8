"""An MCP server with a channel: `channel_server.py BEHAVIOUR [PIPE]`. It pushes what its tool is given.

Each line of the named pipe, JSON, is pushed too. `undeclared` does not declare its channel, `early` pushes
before its first reply, and `endless` never stops.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

BEHAVIOUR, PIPE = sys.argv[1], (sys.argv[2:] or [""])[0]
CAPABILITIES: dict[str, Any] = {"tools": {}}
if BEHAVIOUR != "undeclared":
    CAPABILITIES["experimental"] = {"claude/channel": {}}
lock = threading.Lock()


def send_message(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def push_notification(params: Any) -> None:
    send_message({"method": "notifications/claude/channel", "params": params})


def push_from_pipe() -> None:
    while True:
        for line in Path(PIPE).read_text().splitlines():  # until the last writer closes it
            push_notification(json.loads(line))


def push_endlessly() -> None:
    pause = threading.Event()
    while True:
        push_notification({"content": "once more"})
        pause.wait(0.01)


def handle_request(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            if BEHAVIOUR == "early":
                push_notification({"content": "the early one"})
            server = {"name": "chat", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": server}
        case "tools/list":
            return {"tools": [{"name": "push", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            given = params.get("arguments") or {}
            for number in range(given.get("times", 1)):
                push_notification(given.get("params", {"content": f"number {number}"}))
            return {"content": [{"type": "text", "text": "pushed"}]}
        case _:
            return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method", "")
        if method == "notifications/initialized" and PIPE:
            threading.Thread(target=push_from_pipe, daemon=True).start()
        if method == "notifications/initialized" and BEHAVIOUR == "endless":
            threading.Thread(target=push_endlessly, daemon=True).start()
        if number is None:
            continue
        result = handle_request(method, message.get("params") or {})
        if result is None:
            send_message({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        else:
            send_message({"id": number, "result": result})


main()
