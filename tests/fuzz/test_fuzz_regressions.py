"""Inputs that fuzzing found, each with the target that it broke."""

from __future__ import annotations

import pytest

from .fuzz_targets import TARGETS_BY_NAME

_DEEP = b"[" * 5_000
_START = b'data: {"type":"message_start","message":{"id":"m","model":"m","usage":{}}}\n\n'
_STOP = b'data: {"type":"message_stop"}\n\n'
_BLOCK = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
_CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_MAIL = b'"from":"ann","text":"t","timestamp":"2026-02-13T10:11:35.247Z"'
_DONE = b"data: [DONE]\n\n"
_COMPLETED = b'data: {"type":"response.completed","response":%b}\n\n'
_AT = b'"uuid":"u","timestamp":"2026-02-13T10:11:35Z"'
_MEMBERS = b'{"name":"roof","members":[{"name":"ann"},%b]}'

FOUND: dict[str, tuple[bytes, ...]] = {
    # Nested too deeply, where the usual decoder had given up for another reason.
    "content": (b'["\\ud800",' + _DEEP,),
    "question": (b'{"a":' + _DEEP,),
    "answer": (b'{"a":' + _DEEP,),
    "outpost-up": (b'{"a":' + _DEEP,),
    "outpost-down": (b'{"a":' + _DEEP,),
    "worktree": (
        b'{"a":' + _DEEP,
        b'{"name":"n","agent":"a","owner":{"pid":1,"started":2,"lease":"l","session":"s"},"path":[],'
        b'"branch":"b","base":"c","checkout":"/c","made_at":3}',
    ),
    "script": (
        b'[{"a":' + _DEEP,
        b'[{"pattern":"a{99999999999999999999}"}]',
        b'[{"pattern":"' + b"(" * 5_000 + b'"}]',
    ),
    "toml-script": (b"a = " + _DEEP,),
    "toml-template": (b"a = " + _DEEP, b"a = " + b"9" * 5_000),
    "emulated": (_DEEP,),
    # A name of a field that is not UTF-8 was passed over when read, and all else was lost when rewritten.
    "mail": (b'{%b,"\xff":1}' % _MAIL, b'{%b,"\xba":1,"msg_id":"m-1"}' % _MAIL),
    "inbox": (b'[{%b,"\xff":1}]' % _MAIL,),
    "inbox-file": (b'[{%b,"\xff":1}]' % _MAIL, b'{"a":' * 60_000),
    "foreign": (b'{"\\ud800":NaN,"a":Infinity}',),
    # A line that was no mail was dropped from those that wait.
    "overflow-file": (b"{", b"0 -5 -5 - 7"),
    "agent-file": (b'{"agentType":"\xff"}', b'{"a":' + _DEEP),
    "changes-file": (b"7\n", b"{}\n", b'{"undone":1}\n', b'{"turn":1,"path":7}\n', _DEEP),
    "recording-file": (b'{"a":' + _DEEP,),
    "notebook": (_DEEP,),
    # Halves of surrogate pairs in the names of fields.
    "hook-output": (b'{"\\ud800":1}', b'{"hookSpecificOutput":{"\\ud800":1}}'),
    "settings": (b'{"shoal":{"\\ud800":1}}', b'{"\\ud800":1}', b"", b" "),
    "control-request": (
        b'{"type":"control_request","request_id":"1","request":{"subtype":"stop","\\ud800":1}}',
    ),
    "stream-json": (b'{"type":"user","message":{"content":[{"type":"text","text":"a","\\ud800":1}]}}',),
    "suggestions": (b'[{"type":"setMode","mode":"plan","\\ud800":{"\\ud800":1}}]',),
    "given-definitions": (b'{\n"a":{"description\xff":"d"}}',),
    "plugin": (b"",),
    # Times and numbers without end, and years without their zeros.
    "journal": (
        b'{"at":"0026-02-13T10:11:35.247Z","type":"turn_started","agent":"a","turn":1,"prompt":"p"}',
    ),
    "transcript": (
        b'{"type":"system","subtype":"compact_boundary",%b,"compactMetadata":{"preTokens":1e999}}' % _AT,
        b'{"type":"system","subtype":"shoal_rewind",%b,"turn":Infinity}' % _AT,
    ),
    "roster": (
        b'{"name":"roof","createdAt":1e999,"members":[]}',
        b'{"name":"roof","createdAt":1%b,"members":[]}' % (b"0" * 400),
        _MEMBERS % b'{"name":"bob","joinedAt":1e999}',
        _MEMBERS % b'{"name":["bob"]}',
        _MEMBERS % b'{"name":{},"x":NaN}',
    ),
    # A list where a word is expected.
    "hooks": (
        b'{"Stop":[{"hooks":[{"type":["command"],"command":"x"}]}]}',
        b'{"Stop":[{"hooks":[{"type":"http","url":"http://x","allowedEnvVars":7}]}]}',
    ),
    "mcp": (b'{"a":{"type":[]}}',),
    # Tags of YAML on what they are not for, bytes that are no text, and nesting that ended the process.
    "page": (
        b"---\na: !!map x\n---\n",
        b"---\na: !!seq abc\n---\n",
        b"---\na: !!str [a]\n---\n",
        b"---\na: !!int [1]\n---\n",
        b"---\na: !!seq {b: c}\n---\n",
        b"---\na: {\xff}\n---\n",
    ),
    "template": (b"---\nzzz: " + b"[" * 60_000 + b"\nname: a\ndescription: d\n---\n",),
    "definition": (b"---\nname: a\ndescription: d\nhooks: {\xff: []}\n---\np",),
    # A secret that is not UTF-8 stood across a character.
    "secrets": (b"\xb36789abcdefghijklmnopant-0123456789abcdefghijklmnop0",),
    # Many stars were tried in every way there is.
    "rules": (
        b"Bash(%bb)" % (b"* a " * 10),
        b"Read(%bb)" % (b"*a" * 10),
        b"Read(%bb)" % (b"**a" * 10),
        b"Edit(%bb)" % (b"a/**/" * 10),
        b"Read(%bb)" % (b"a**/" * 10),
        b"Read(%bb)" % (b"[+-0]*" * 10),
    ),
    "globs": (b'{"a":' * 20_000 + b"}" * 20_000,),
    "schema": (
        b'{"required":true}',
        b'{"properties":false}',
        b'{"required":[{}]}',
        b'{"minimum":{},"maximum":"x"}',
        b'{"multipleOf":[1]}',
        b'{"multipleOf":1e-320}',
        b'{"pattern":"("}',
        b'{"patternProperties":{"(":{}}}',
        b'{"type":[{}],"enum":7,"prefixItems":1,"allOf":2,"minLength":"a"}',
        b'{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}',
    ),
    # Events of another shape than their protocol has.
    "messages-stream": (
        _START
        + _BLOCK
        + b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}\n\n'
        + _STOP,
        _START + b'data: {"type":"message_delta","delta":{"stop_reason":["x"]}}\n\n' + _STOP,
        b'data: {"type":"message_start","message":{"id":7,"model":{},"usage":{"input_tokens":1e999}}}\n\n'
        + _STOP,
        _BLOCK + _BLOCK.replace(b'"index":0', b'"index":"a"') + _STOP,
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking"}}\n\n'
        + _STOP,
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a",'
        b'"name":"b","input":[1]}}\n\n' + _STOP,
    ),
    "chat-stream": (
        b'data: {"id":7,"choices":[{"delta":{},"finish_reason":{}}]}\n\n' + _DONE,
        b'data: {"usage":["x"]}\n\n' + _DONE,
        b'data: {"choices":[{"delta":{"tool_calls":[{"id":[],"function":{"name":7}}]}}]}\n\n' + _DONE,
    ),
    "responses-stream": (
        b'data: {"type":"response.output_text.delta","delta":{}}\n\n' + _COMPLETED % b"{}",
        _COMPLETED % b'{"id":[],"usage":{"input_tokens":Infinity}}',
        _COMPLETED % b"[1]",
        _COMPLETED % b'{"output":[{"type":"function_call","name":[],"call_id":{}}]}',
    ),
    # The size of a chunk with a sign was read again and again.
    "http": (
        _CHUNKED + b"-6\r\nabcdef",
        _CHUNKED + b"-7\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 ²00 OK\r\n\r\n".encode("latin-1"),
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5_000 + b"\r\n\r\n",
    ),
    "error-body": (
        b"inf\n",
        b"1e999\n",
        b'x\n{"error":{"code":"\xc2\xb2"}}',
        b'x\n{"error":{"code":"' + b"9" * 5_000 + b'"}}',
    ),
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param(name, data, id=f"{name}-{at}")
        for name, all_of in FOUND.items()
        for at, data in enumerate(all_of)
    ],
)
def test_an_input_found_by_fuzzing_no_longer_breaks_its_target(name: str, data: bytes) -> None:
    TARGETS_BY_NAME[name].try_input(data)
