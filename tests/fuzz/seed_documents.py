"""Valid documents, a few for each target: random inputs start from them."""

from __future__ import annotations

_ENTRY = (
    '{"from":"ann","text":"{\\"type\\":\\"x\\"} <b>","timestamp":"2026-02-13T10:11:35.247Z","read":false,'
    '"summary":"s","color":"blue","msg_id":"m-1","fyi":true,"shoal_sig":"00","other":{"a":[1.50]}}'
)
_NAMELESS = '{"from":"bob","text":"hé","timestamp":"2026-02-13T10:11:35.247Z","msgV":2}'
_TASK = (
    '{"id":"7","subject":"Mend","description":"it","activeForm":"Mending","owner":"ann","status":"pending",'
    '"blocks":["8","x"],"blockedBy":["6"],"metadata":{"shoal:attempt":"p1-a","n":1e2},"extra":[null]}'
)
_MEMBER = (
    '{"agentId":"ann@roof","name":"ann","agentType":"worker","model":"m","joinedAt":1770977603516,'
    '"tmuxPaneId":"%1","cwd":"/w","subscriptions":[],"prompt":"p","color":"red","planModeRequired":false,'
    '"backendType":"tmux","isActive":true,"sees":1}'
)
_UPDATES = (
    '[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls:*"}],"behavior":"allow",'
    '"destination":"session"},{"type":"addDirectories","directories":["/w"]},'
    '{"type":"setMode","mode":"acceptEdits"}]'
)
_BLOCKS = (
    '[{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"Read","input":{"path":"x"}},'
    '{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"b"},{"type":"odd"}]},'
    '{"type":"thinking","thinking":"c","signature":"s"},{"type":"server_tool_use"}]'
)
_STAMP = '"at":"2026-02-13T10:11:35.247Z"'
_HOOKS = (
    '{"PreToolUse":[{"matcher":"Bash|Edit","hooks":[{"type":"command","command":"x","timeout":5},'
    '{"type":"http","url":"http://localhost/h","headers":{"A":"$HOME"},"allowedEnvVars":["HOME"],'
    '"onFailure":"block"}]}],"Stop":[{"hooks":[{"command":"y","async":true,"asyncRewake":true}]}]}'
)
_SERVERS = (
    '{"a":{"command":"${HOME}/x","args":["-v",1],"env":{"A":true,"B":"${NOT_SET:-z}"},"cwd":"/w"},'
    '"b":{"type":"http","url":"https://x.example/mcp","headers":{"Authorization":"Bearer ${TOKEN}"}},'
    '"c":{"type":"sse","url":"http://x.example"}}'
)
_QUESTION = (
    '{"type":"permission","id":"q1","agent":"lead","tool_use_id":"t","tool":"Bash","input":{"command":"ls"},'
    f'"reason":"r","suggestions":{_UPDATES}}}'
)
_CHOICE = (
    '{"type":"choice","id":"q2","agent":"lead","choices":[{"question":"q","header":"h",'
    '"options":[{"label":"l"}],"multiSelect":true}]}'
)
_PLAN = '{"type":"plan","id":"q3","agent":"lead","plan":"p","path":"/p","digest":"d","wishes":["w"]}'

_SEEDS: dict[str, tuple[str, ...]] = {
    "content": ("[1, 2.5, null]", '{"a": "\\ud83d"}', "1e999", "NaN", "123456789012345678901234567890"),
    "foreign": (_ENTRY, _TASK, '{"gone":1,"n":1E400,"\\ud800":NaN,"big":123456789012345678901234567890}'),
    "inbox": (f"[{_ENTRY},\n{_NAMELESS},{_NAMELESS}]", f"[{_ENTRY},7,{{}}]", "[]"),
    "mail": (_ENTRY, _NAMELESS),
    "task": (_TASK, '{"id":"1","subject":"s","status":"deleted"}'),
    "roster": (
        f'{{"name":"roof","description":"d","createdAt":1770977603516,"leadAgentId":"team-lead@roof",'
        f'"leadSessionId":"s","members":[{_MEMBER},{{"name":"bob","joinedAt":1.5}},{{"odd":1}}],"x":{{}}}}',
    ),
    "journal": (
        f'{{{_STAMP},"type":"turn_started","agent":"lead","turn":1,"prompt":"p","after":null}}',
        f'{{{_STAMP},"type":"asked","agent":"lead","question":{_QUESTION}}}',
        f'{{{_STAMP},"type":"from_the_future","agent":"lead"}}',
    ),
    "torn-journal": (
        f'{{{_STAMP},"type":"turn_st{{{_STAMP},"type":"turn_started","agent":"lead","turn":1,"prompt":"p"}}',
    ),
    "transcript": (
        f'{{"parentUuid":null,"isSidechain":true,"agentId":"a","sessionId":"s","cwd":"/w","type":"assistant",'
        f'"message":{{"id":"m","role":"assistant","model":"x","content":{_BLOCKS},"stop_reason":"end_turn",'
        '"usage":{"input_tokens":1,"output_tokens":2}},"requestId":"r","uuid":"u","timestamp":'
        '"2026-02-13T10:11:35.247Z"}',
        '{"type":"user","message":{"role":"user","content":"hi"},"uuid":"u","timestamp":"2026-02-13"}',
        '{"type":"system","subtype":"compact_boundary","uuid":"u","timestamp":"2026-02-13T10:11:35Z",'
        '"compactMetadata":{"trigger":"auto","preTokens":12}}',
        '{"type":"system","subtype":"shoal_rewind","uuid":"u","timestamp":"2026-02-13T10:11:35Z","turn":2}',
        '{"type":"summary","summary":"title"}',
    ),
    "body": (
        '{"type":"task_assignment","taskId":"1","subject":"s","description":"d","assignedBy":"ann",'
        '"timestamp":"2026-02-13T10:13:23.516Z"}',
        '{"type":"permission_request","request_id":"perm-1","agent_id":"ann","tool_name":"Bash",'
        f'"tool_use_id":"t","description":"d","input":{{}},"permission_suggestions":{_UPDATES}}}',
        '{"type":"shutdown_request","requestId":"s-1","from":"team-lead","timestamp":"t","reason":"r"}',
    ),
    "script-step": (
        '\0\0\0\x40{"type":"agent","id":1,"path":"map a","agent":"a","prompt":"p","schema":{}}',
        '\0\0\0\x40{"type":"shell","id":2,"path":"shell","command":"ls","timeout":1.5}',
        '\0\0\0\x40{"type":"ask","id":3,"path":"ask","question":"q","options":["a","b"]}',
        '\0\0\0\x40{"type":"returned","value":[1,{"a":null}]}',
    ),
    "control-request": (
        '{"type":"control_request","request_id":"1","request":{"subtype":"set_model","model":"m"}}',
        '{"type":"control_request","request_id":"1","request":{"subtype":"send","to":"ann","text":"t"}}',
        '{"type":"user","request_id":"2","message":{"role":"user","content":[{"type":"text","text":"a"}]}}',
        '{"type":"user","message":{"role":"user","content":"hi"}}',
    ),
    "control-told": (
        '{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{}}}',
        '{"type":"gap","offset":7}',
        '{"type":"turn_started","agent":"lead","turn":1,"prompt":"p"}',
    ),
    "stream-json": (
        f'{{"type":"user","message":{{"role":"user","content":{_BLOCKS}}}}}',
        '{"type":"control_request","request_id":"1","request":{"subtype":"initialize","agents":{"a":{}},'
        '"hooks":{"Stop":[{"matcher":"x","hookCallbackIds":["c"],"timeout":3,"onFailure":"block"}]}}}',
        '{"type":"control_response","response":{"request_id":"1","subtype":"error","error":"e"}}',
        '{"type":"keep_alive"}',
    ),
    "hook-output": (
        '{"continue":false,"stopReason":"s","suppressOutput":true,"systemMessage":"m","decision":"block",'
        '"reason":"r","hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",'
        '"permissionDecisionReason":"w","updatedInput":{"a":1},"additionalContext":"c"}}',
        '{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"m","interrupt":true}}}',
        '{"async":true,"asyncTimeout":15000}\n{"systemMessage":"m"}',
        "plain words",
    ),
    "hooks": (_HOOKS,),
    "mcp": (_SERVERS,),
    "settings": (
        f'{{"model":"m","permissions":{{"allow":["Bash(ls:*)"],\n"deny":["Read(./.env)"],'
        f'"defaultMode":"plan","additionalDirectories":["/x"]}},"env":{{"A":1}},"cleanupPeriodDays":3,'
        f'"mcpServers":{_SERVERS},"hooks":{_HOOKS},"theirs":[{{"x":[]}}],\n"shoal":{{"models":{{"m":'
        '{"input":1.5,"window":1000}},"agent_type_limits":{"worker":{"usd":1,"odd":2}},"sandbox":'
        '{"enabled":"auto","writable":["/w"]},"max_turn":3,"compact_at":0.5}}',
        "",
    ),
    "plugin": (
        '{"name":"p","version":"1","description":"d","agents":"./a","skills":["./s"],"hooks":'
        f'{_HOOKS},"mcpServers":"./m.json","author":{{}},"command":["x"]}}',
    ),
    "papers": (
        "--agent-id\nalice@roof\n--agent-name\nalice\n--team-name=roof\n--agent-color\nblue\n"
        "--parent-session-id\ns\n--agent-type\nworker\n--model\nm\n--plan-mode-required\n"
        "--permission-mode\nplan\n--allowedTools\nRead\n--disallowedTools=Bash(rm:*)",
    ),
    "outpost-up": (
        '{"type":"Pong","number":1,"busy":true}',
        '{"type":"Left","status":"completed","text":"t","detail":"d","work":null}',
        '{"type":"Told","line":{"any":["thing"]}}',
        f'{{"type":"Asks","question":{_QUESTION}}}',
        '{"type":"Permits","update":{"type":"setMode","mode":"plan"}}',
    ),
    "outpost-down": (
        '{"type":"Granted","number":3,"refusal":{"limit":"usd","scope":"tree","whose":"","sentence":"s"}}',
        '{"type":"Answers","question":"q","answer":{"type":"denied","reason":"r"}}',
        '{"type":"Leave","why":"w","stays":true}',
    ),
    "question": (_QUESTION, _CHOICE, _PLAN),
    "answer": (
        f'{{"type":"allowed","remember":"session","input":{{"a":1}},"updates":{_UPDATES}}}',
        '{"type":"denied","reason":"r","by":"policy","ends_turn":true}',
        '{"type":"chosen","answers":{"q":"l"}}',
        '{"type":"approved","digest":"d","mode":"plan"}',
    ),
    "suggestions": (_UPDATES,),
    "trust": ('{"projects":{"/project":{"file":{"digest":"d","trusted":true,"at":1,"x":2}}},"y":[1]}', ""),
    "worktree": (
        '{"name":"n","agent":"a","owner":{"pid":1,"started":2,"lease":"l","session":"s"},"path":"/p",'
        '"branch":"b","base":"c","checkout":"/c","inside":"","made_at":3,"state":"kept"}',
    ),
    "given-definitions": (
        '{"reviewer":{"description":"d","prompt":"p","tools":["Read","Bash(git log:*)"],"model":"inherit",\n'
        '"maxTurns":3,"hooks":{"Stop":[]},"mcpServers":[{"a":{}}],"color":"red","effort":"high","tols":1}}',
    ),
    "definition": (
        "---\nname: reviewer\ndescription: Use it when: asked\ntools: Read, Bash(git log:*)\nmodel: inherit\n"
        "permissionMode: plan\nmaxTurns: 5\nmaxBudgetUsd: 1.5\ncolor: '#ff0000'\nhooks:\n  Stop:\n"
        "    - hooks: [{type: command, command: x}]\nmcpServers: [a, {b: {command: c}}]\n---\nPrompt.\n",
        "---\nname: a\ndescription: >\n  two\n  lines\nbackground: yes\nskills: [x, y]\n---\nPrompt.\n",
    ),
    "skill": (
        "---\nname: pdf\ndescription: Reads PDFs.\nlicense: MIT\nmetadata:\n  a: 1\n"
        "allowed-tools: Read Bash(ls:*)\nargument-hint: [file] [page]\ncontext: fork\nuser-invocable: no\n"
        "---\nDo $ARGUMENTS.\n",
    ),
    "command": ("Say $1.\n", "---\ndescription: d\nmodel: inherit\n---\n# Title\n"),
    "page": (
        "---\na: 1\nb: [x, {y: z}]\nc: |\n  text\nd: &x {e: f}\ng: *x\nh: !!str 7\ni: 'q'\n---\nBody\n",
        "\ufeff\n---\r\na: b: c\r\n---\r\n",
    ),
    "template": (
        "---\nname: review\ndescription: d\nroles:\n  - name: ann\n    prompt: p {goal}\n    mode: plan\n"
        "    count: 2\n"
        "tasks:\n  - key: a\n    subject: s\n  - subject: t\n    blockedBy: [a]\n    owner: ann-1\n"
        "budget: {usd: 1.5, tokens: 1000}\n---\nLead {goal}.\n",
    ),
    "toml-template": (
        'name = "review"\ndescription = "d"\nprompt = """\nLead {goal}."""\n[[roles]]\nname = "ann"\n'
        'prompt = "p"\n[[tasks]]\nkey = "a"\nsubject = "s"\n'
        '[[tasks]]\nsubject = "t"\nblockedBy = ["a"]\n[budget]\nusd = 2\n',
    ),
    "script": (
        '{"steps":[{"match":"a","pattern":"(?P<x>b+)","text":"{{x}}","tools":[{"name":"Read",'
        '"input":{"p":"{{x}}"}}],"usage":{"input_tokens":1},"stop_reason":"end_turn","delay":0.5}],'
        '"pace":0.1,"price":{"input":1,"output":2}}',
        '[{"text":"hi","repeat":true}]',
    ),
    "toml-script": ('pace = 0.5\n[[steps]]\ntext = "hi"\nat = 1\n',),
}


TOKENS: tuple[bytes, ...] = (
    *(
        b"",
        b"\0",
        b"\n",
        b"\r\n",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\xbd",
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"'",
    ),
    *(
        b":",
        b",",
        b"---\n",
        b"\n---\n",
        b"!!map ",
        b"!!seq ",
        b"!!int ",
        b"!!str ",
        b"&a ",
        b"*a",
        b"? ",
        b"- ",
    ),
    *(
        b"|",
        b">",
        b"#",
        b"\\",
        b"\\ud800",
        b"null",
        b"NaN",
        b"1e999",
        b"-1",
        b"-6\r\n",
        b"9" * 5_000,
        b"\xc2\x85",
        b"\x0c",
    ),
    *(b"<", b"(", b")", b"*", b"**/", b"$(", b"`", b"~", b"@", b"\xc2\xb2", b"-----END ", b"\t", b" ", b"="),
)
"""Tokens that are inserted into them."""


def get_seeds(name: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in _SEEDS[name])
