"""Records the requests of a session with a sub-agent and a teammate, and reduces them to their protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_scripts import run_all_turns, spawn_agent
from session_helpers import open_session
from shoal.core.conversation.messages import (
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelRequest, ToolSchema
from shoal.models.scripted_model import ReplyLike, ScriptedModel
from team_scripts import approve_shutdown, find_speaker, send_message, spawn_member

_TAG = re.compile(r"</?([a-z][\w-]*)((?: [\w-]+=(?:\"[^\"]*\"|'[^']*'))*)>")
_ATTRIBUTE = re.compile(r"([\w-]+)=")
_JSON_KEY = re.compile(r'"(\w+)":')
_MACHINE = re.compile(r"^Platform: .*$", re.MULTILINE)


class RequestRecorder:
    """Scripted model that stores each speaker's first and last request."""

    def __init__(self) -> None:
        self.first: dict[str, ModelRequest] = {}
        self.last: dict[str, ModelRequest] = {}
        self.model = ScriptedModel(self._choose_reply)

    def _choose_reply(self, request: ModelRequest) -> ReplyLike:
        speaker = find_speaker(request)
        if request.messages[0].text.startswith("child"):
            speaker = "child"
        elif any("<fork-boilerplate>" in message.text for message in request.messages):
            speaker = "fork"
        copy = ModelRequest(system=request.system, messages=list(request.messages), tools=request.tools)
        self.first.setdefault(speaker, copy)
        self.last[speaker] = copy
        spoken = sum(message.role == "assistant" for message in request.messages)
        if speaker == "lead":
            return _play_lead(request, spoken)
        if speaker == "mate":
            return _play_mate(request, spoken)
        return "nothing found"


def _play_lead(request: ModelRequest, spoken: int) -> ReplyLike:
    texts = "\n".join(message.text for message in request.messages)
    script: list[ReplyLike] = [
        [
            spawn_agent("child in front"),
            spawn_agent("child behind", run_in_background=True),
            ToolUseBlock(id="team", name="TeamCreate", input={"team_name": "crew"}),
        ],
        [
            ToolUseBlock(id="task", name="TaskCreate", input={"subject": "Look", "description": "Look."}),
            spawn_member("mate", "mate begins"),
        ],
    ]
    if spoken < len(script):
        return script[spoken]
    is_reported = "all done" in texts
    is_asked = any(
        isinstance(call.input.get("message"), dict)
        for message in request.messages
        for call in message.tool_uses
    )
    return send_message("mate", {"type": "shutdown_request"}) if is_reported and not is_asked else "waiting"


def _play_mate(request: ModelRequest, spoken: int) -> ReplyLike:
    if "shutdown_response" in request.messages[-1].text:
        return approve_shutdown(request)
    return send_message("team-lead", "all done") if spoken == 0 else "idle now"


async def record_session(project: Path, **options: Any) -> RequestRecorder:
    recorder = RequestRecorder()
    async with open_session(project, recorder.model, **options) as session:
        await run_all_turns(session, "lead begins")
    return recorder


def count_bytes(request: ModelRequest, project: Path) -> dict[str, int]:
    """Count the UTF-8 bytes of a first request, with neutral values for the machine it runs on."""
    system = _MACHINE.sub("Platform: Linux x86_64", request.system.replace(str(project), "/project"))
    tools = sum(len(encode_tool(each)) for each in request.tools)
    return {
        "system": len(system.encode()),
        "tools": tools,
        "messages": sum(len(message.text.encode()) for message in request.messages),
    }


def encode_tool(schema: ToolSchema) -> bytes:
    tool = {"name": schema.name, "description": schema.description, "input_schema": schema.input_schema}
    return json.dumps(tool, ensure_ascii=False, separators=(",", ":")).encode()


def extract_protocol(request: ModelRequest, known_schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return names, types and tags of a request without its prose; schemas only if they are not known."""
    texts = [request.system, *(text for message in request.messages for text in _list_texts(message.content))]
    tags = {
        (tag, *sorted(_ATTRIBUTE.findall(attributes)))
        for text in texts
        for tag, attributes in _TAG.findall(text)
    }
    return {
        "tools": [each.name for each in request.tools],
        "other_schemas": {
            name: schema
            for name, schema in extract_schemas(request).items()
            if schema != known_schemas.get(name)
        },
        "tags": sorted(" ".join(tag) for tag in tags),
        "json_keys": sorted({key for text in texts for key in _JSON_KEY.findall(text)}),
    }


def extract_schemas(request: ModelRequest) -> dict[str, Any]:
    return {each.name: remove_descriptions(each.input_schema) for each in request.tools}


def _list_texts(content: Any) -> list[str]:
    return [
        extract_tool_result_text(block) if isinstance(block, ToolResultBlock) else block.text
        for block in content
        if isinstance(block, (TextBlock, ToolResultBlock))
    ]


def remove_descriptions(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {
            key: {name: remove_descriptions(each) for name, each in value.items()}
            if key == "properties"
            else remove_descriptions(value)
            for key, value in schema.items()
            if key != "description"
        }
    if isinstance(schema, (list, tuple)):
        return [remove_descriptions(each) for each in schema]
    return schema
