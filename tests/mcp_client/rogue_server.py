"""A hand-written MCP server that can do what no library would: `rogue_server.py BEHAVIOUR [ARGUMENT]`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

BEHAVIOUR, ARGUMENT = sys.argv[1], (sys.argv[2:] or [""])[0]
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS: dict[str, list[Any]] = {
    "liar": [
        {"name": "good", "inputSchema": OBJECT},
        {"name": "text", "inputSchema": "a text"},
        {"name": "list", "inputSchema": {"type": "array"}},
        {"name": "odd", "inputSchema": {"type": "object", "properties": [1]}},
        {"inputSchema": OBJECT},
        {"name": "bare", "inputSchema": {}, "description": 5, "annotations": "x", "outputSchema": 7},
        {"name": "go od", "inputSchema": OBJECT},
        {"name": "go.od", "inputSchema": OBJECT},
        {"name": "x" * 90, "inputSchema": OBJECT},
        {"name": "huge", "inputSchema": {"type": "object", "description": "y" * 200_000}},
    ],
    "none": [],
}
_open_calls: list[Any] = []
_unanswered_lists: list[Any] = []
USUAL_TOOLS = [{"name": name, "inputSchema": OBJECT} for name in ("echo", "pid")]


def send_message(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def handle_call(number: Any, name: str, arguments: dict[str, Any]) -> None:
    match BEHAVIOUR:
        case "mute":
            return
        case "dies":
            os._exit(7)
        case "flood":
            write_log_lines()
        case "line":
            while True:
                sys.stdout.write("w" * 1_000_000)
        case "picture" | "late-id" if name == "echo":
            send_large_image(number)
            return
        case "garbage":
            sys.stdout.write("Listening on port 80\n" * 50)
        case "asks" | "returns":
            handle_scripted_call(number, json.loads(arguments["text"]))
            return
        case "more" | "shy":
            TOOLS[BEHAVIOUR] = [*USUAL_TOOLS, {"name": "late", "inputSchema": OBJECT}]
            send_message({"method": "notifications/tools/list_changed"})
        case _:
            pass
    text = str(os.getpid()) if name == "pid" else f"{ARGUMENT} {arguments.get('text', '')}".strip()
    send_message({"id": number, "result": {"content": [{"type": "text", "text": text}]}})


def handle_list(number: Any) -> None:
    if BEHAVIOUR == "shy" and "shy" in TOOLS and not _unanswered_lists:
        _unanswered_lists.append(number)
        return
    send_message({"id": number, "result": {"tools": TOOLS.get(BEHAVIOUR, USUAL_TOOLS)}})


def write_log_lines() -> None:
    log = {"level": "info", "data": "z" * 1_000}
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": log}) + "\n"
    for _ in range(100):
        sys.stdout.write(line * 1_000)


def send_large_image(number: Any) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * 27_000_000}
    answer = {"id": number, "result": {"content": [image]}}
    send_message(dict(reversed(answer.items())) if BEHAVIOUR == "late-id" else answer)


def handle_scripted_call(number: Any, script: Any) -> None:
    """Return the given result, or ask the client and return what it answers."""
    if BEHAVIOUR == "returns":
        send_message({"id": number, "result": script})
    else:
        _open_calls.append(number)
        send_message({"id": f"e{number}", "method": "elicitation/create", "params": script})


def main() -> None:
    sys.stderr.write(f"{BEHAVIOUR} {os.getpid()}\n")
    sys.stderr.flush()
    if BEHAVIOUR == "fails":
        sys.stderr.write("no port left\n")
        sys.exit(4)
    if BEHAVIOUR == "chatty":
        sys.stdout.write("no message at all\n" * 5_000)
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                if BEHAVIOUR == "slow":
                    Path(ARGUMENT).read_text()  # a pipe: blocks until somebody opens the other end
                send_message(
                    {
                        "id": number,
                        "result": {
                            "protocolVersion": "2025-06-18",
                            "capabilities": {"tools": {"listChanged": True}},
                            "serverInfo": {"name": BEHAVIOUR, "version": "1"},
                        },
                    }
                )
            case "tools/list":
                sys.stderr.write("listed\n" * (BEHAVIOUR == "more"))
                sys.stderr.flush()
                handle_list(number)
            case "tools/call":
                handle_call(number, params["name"], params.get("arguments") or {})
            case None if _open_calls:
                answer = json.dumps(message.get("result") or message["error"])
                content = [{"type": "text", "text": answer}]
                send_message({"id": _open_calls.pop(), "result": {"content": content}})
            case _ if number is not None:
                send_message({"id": number, "error": {"code": -32601, "message": "Method not found"}})


main()
