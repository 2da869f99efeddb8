"""A small MCP server on standard input and output: solo_server.py NAME TOOLS [DELAY]."""

import json
import sys
import time


def _answer(method, name, count, parameters):
    if method == "initialize":
        version = parameters.get("protocolVersion", "2025-06-18")
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": name, "version": "1.0"},
        }
    if method == "tools/list":
        schema = {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for."}},
        }
        return {
            "tools": [
                {
                    "name": f"tool_{number}",
                    "description": f"Looks up things in {name}.",
                    "inputSchema": schema,
                }
                for number in range(count)
            ]
        }
    if method == "tools/call":
        text = f"{name} found {parameters['arguments'].get('query', 'nothing')}"
        return {"content": [{"type": "text", "text": text}]}
    return {}


def main():
    name, count = sys.argv[1], int(sys.argv[2])
    time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 0)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = _answer(message["method"], name, count, message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
