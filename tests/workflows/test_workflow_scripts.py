"""Workflows that a model writes: approved, run in a process without files or network, stopped and resumed."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.workflows import script_host
from shoal.backends.sandbox import script_process
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import Event, WorkflowEnded, WorkflowStepStarted
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer, PermissionQuestion
from shoal.models.scripted_model import ReplyLike

SETTINGS = json.dumps({"shoal": {"workflow_tool": True}})
pytestmark = [pytest.mark.needs("bwrap")]


class Writer:
    """Model of a lead that runs one script, and of agents that answer every prompt."""

    def __init__(self, code: str, **tool_input: Any) -> None:
        self.input = {"name": "job", "script": code, "max_agents": 5, **tool_input}
        self.prompts: list[str] = []
        self.notices: list[str] = []
        self.result = ""

    def reply(self, request: ModelRequest) -> ReplyLike:
        first, last = request.messages[0], request.messages[-1]
        if first.text != "go":
            self.prompts.append(first.text)
            if any(tool.name == "StructuredOutput" for tool in request.tools) and len(request.messages) == 1:
                return [ToolUseBlock(id="c", name="StructuredOutput", input={"good": True})]
            return f"did {first.text}"
        if len(request.messages) == 1:
            return [ToolUseBlock(id="call", name="Workflow", input=self.input)]
        if "<task-notification>" in last.text:
            self.notices.append(last.text)
        elif not self.result:
            self.result = str(last.content[0])
        return "ok"

    def open(self, cwd: Path, **options: Any) -> shoal.Session[None]:
        options.setdefault("mode", "bypassPermissions")
        return shoal.open(cwd=cwd, model=shoal.ScriptedModel(self.reply), settings=SETTINGS, **options)

    async def run(self, cwd: Path, **options: Any) -> WorkflowEnded | None:
        """Run a turn and the turns that follow from it; return the end of the workflow."""
        ends: list[WorkflowEnded] = []
        async with self.open(cwd, **options) as session:
            session.subscribe(lambda event: ends.append(event) if isinstance(event, WorkflowEnded) else None)
            await session.run("go")
            async with asyncio.timeout(60):
                while (turn := await session.next_turn()) is not None:
                    await turn
        return ends[-1] if ends else None


GOOD = """
import json

async def main(flow, files):
    flow.phase("edit")
    edits = await flow.map("general-purpose", [f"edit {file}" for file in files], at_once=2)
    flow.phase("check")
    verdict = await flow.agent("general-purpose", "judge", schema={
        "type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]})
    command = await flow.shell("echo hello")
    numbers = [flow.random(), flow.random()]
    assert flow.now().year > 2000 and numbers[0] != numbers[1]
    return {"edits": edits, "verdict": verdict, "shell": [command.exit_code, command.text.strip()]}
"""


@pytest.mark.spec("WFL-08")
@pytest.mark.usefixtures("driver")
async def test_a_script_runs_in_the_background_and_the_lead_gets_its_result(tmp_path: Path) -> None:
    writer = Writer(GOOD, arguments={"files": ["a", "b"]})
    ended = await writer.run(tmp_path)
    assert ended is not None
    assert ended.status == "completed", ended.detail
    assert ended.value == {
        "edits": ["did edit a", "did edit b"],
        "verdict": {"good": True},
        "shell": [0, "hello"],
    }
    assert "runs in the background" in writer.result
    assert len(writer.notices) == 1
    assert "<status>completed</status>" in writer.notices[0]
    assert "did edit b" in writer.notices[0]


@pytest.mark.spec("WFL-08")
@pytest.mark.parametrize("remember", ["session", "settings"])
async def test_an_answer_about_one_script_never_covers_the_next(tmp_path: Path, remember: Any) -> None:
    asked: list[PermissionQuestion] = []

    def answer(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, PermissionQuestion)
        asked.append(question)
        return question.allow(remember=remember)

    def reply(request: ModelRequest) -> ReplyLike:
        count = sum(message.text == "go" for message in request.messages)
        if request.messages[-1].text != "go":
            return "ok"
        script = f"async def main(flow):\n    return {count}\n"
        return [ToolUseBlock(id=f"c{count}", name="Workflow", input={"name": "job", "script": script})]

    model = shoal.ScriptedModel(reply)
    async with shoal.open(cwd=tmp_path, model=model, settings=SETTINGS, on_question=answer) as session:
        for _ in range(2):
            await session.run("go")
            async with asyncio.timeout(60):
                while (turn := await session.next_turn()) is not None:
                    await turn
    assert [question.tool for question in asked] == ["Workflow", "Workflow"]
    assert [(question.rule, question.suggestions) for question in asked] == [("", ())] * 2
    assert not (tmp_path / ".claude").exists()


@pytest.mark.spec("WFL-08")
@pytest.mark.parametrize("mode", ["bypassPermissions", "default"])
@pytest.mark.parametrize(
    ("step", "tool"), [("flow.shell('touch made')", "Bash"), ("flow.agent('general-purpose', 'x')", "Agent")]
)
async def test_a_script_cannot_use_a_tool_that_the_lead_lacks(
    tmp_path: Path, mode: str, step: str, tool: str
) -> None:
    writer = Writer(f"async def main(flow):\n    return str(await {step})\n")
    ended = await writer.run(
        tmp_path,
        mode=mode,
        available_tools=["Read", "Workflow"],
        allowed_tools=["Bash(touch:*)", "Workflow"],
    )
    assert ended is not None
    assert (ended.status, writer.prompts) == ("failed", [])
    assert f"needs the tool {tool}" in ended.detail
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("WFL-08")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_person_sees_the_script_the_agents_and_the_cost_before_it_runs(
    tmp_path: Path, allowed: bool
) -> None:
    asked: list[PermissionQuestion] = []

    async def answer(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, PermissionQuestion)
        asked.append(question)
        return AllowAnswer() if allowed else DenyAnswer(reason="too expensive")

    writer = Writer("async def main(flow):\n    return await flow.agent('general-purpose', 'one')\n")
    ended = await writer.run(tmp_path, mode="default", on_question=answer)
    (question,) = asked
    assert question.tool == "Workflow"
    assert "flow.agent('general-purpose', 'one')" in question.input["script"]
    assert "up to 5 agents, about " in question.reason
    assert (ended is not None) == allowed
    assert writer.prompts == (["one"] if allowed else [])
    assert allowed or "too expensive" in writer.result


@pytest.mark.spec("WFL-08")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("async def main(flow): return 1\n", "up to 1 agent, about "),
        (
            "async def main(flow): await flow.agent('Plan', 'x', model='opus')\n",
            "chooses models, so the cost can differ",
        ),
    ],
)
async def test_the_question_about_a_script_has_numbers_even_if_the_model_gave_none(
    tmp_path: Path, script: str, expected: str
) -> None:
    asked: list[PermissionQuestion] = []

    def deny(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, PermissionQuestion)
        asked.append(question)
        return DenyAnswer(reason="no")

    writer = Writer(script)
    del writer.input["max_agents"]
    await writer.run(tmp_path, mode="default", on_question=deny)
    assert expected in asked[0].reason


@pytest.mark.spec("WFL-08")
@pytest.mark.parametrize("number", ["7", 7.0])
async def test_the_question_about_a_script_has_the_number_that_the_call_gets(
    tmp_path: Path, number: object
) -> None:
    asked: list[PermissionQuestion] = []

    def allow(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, PermissionQuestion)
        asked.append(question)
        return AllowAnswer()

    body = "await flow.map('Plan', [str(number) for number in range(8)])"
    ended = await Writer(f"async def main(flow):\n    {body}\n", max_agents=number).run(
        tmp_path, mode="default", on_question=allow
    )
    assert "up to 7 agents, about " in asked[0].reason
    assert ended is not None
    assert "only 7 agents were approved" in ended.detail


@pytest.mark.spec("WFL-08")
async def test_the_cost_of_agents_with_their_own_models_is_said_to_differ(tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []

    def deny(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, PermissionQuestion)
        asked.append(question)
        return DenyAnswer(reason="no")

    script = "async def main(flow):\n    return await flow.agent('judge', 'one')\n"
    for model in (None, "opus"):
        judge = {"description": "judges", "prompt": "Judge.", **({} if model is None else {"model": model})}
        await Writer(script).run(tmp_path, mode="default", on_question=deny, agents={"judge": judge})
    assert ["so the cost can differ" in question.reason for question in asked] == [False, True]


@pytest.mark.spec("WFL-08")
async def test_a_person_sees_the_script_that_a_call_resumes(tmp_path: Path) -> None:
    """The script may have been approved long ago, by a rule, or by another person."""
    asked: list[PermissionQuestion] = []

    def answer(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, PermissionQuestion)
        asked.append(question)
        return DenyAnswer(reason="not again")

    writer = Writer("async def main(flow, part):\n    raise ValueError(part)\n", arguments={"part": "x"})
    async with writer.open(tmp_path) as session:
        await session.run("go")
        while (turn := await session.next_turn()) is not None:
            await turn
        (workflow,) = session.workflows.read_records().workflows
        writer.result = ""

    def resume(request: ModelRequest) -> ReplyLike:
        if request.messages[-1].text == "go on":
            return [ToolUseBlock(id="again", name="Workflow", input={"resume": workflow})]
        return "ok"

    model = shoal.ScriptedModel(resume)
    async with shoal.open(
        cwd=tmp_path, model=model, settings=SETTINGS, on_question=answer, continue_last=True
    ) as session:
        await session.run("go on")
    (question,) = asked
    assert question.input == {
        "resume": workflow,
        "script": writer.input["script"],
        "max_agents": 5,
        "arguments": {"part": "x"},
    }
    assert "up to 5 agents, about " in question.reason


@pytest.mark.spec("WFL-09")
async def test_a_person_sees_only_a_few_questions_of_a_script_at_once(tmp_path: Path) -> None:
    script = """
import asyncio

async def main(flow):
    return await asyncio.gather(*[flow.ask(f"Question {n}?", ["yes"]) for n in range(20)])
"""
    open_now, most, answered = 0, 0, 0

    async def answer(question: shoal.Question) -> shoal.Answer:
        nonlocal open_now, most, answered
        open_now, most = open_now + 1, max(most, open_now + 1)
        for _ in range(1_000):  # time for more questions to arrive
            await asyncio.sleep(0)
        open_now, answered = open_now - 1, answered + 1
        assert isinstance(question, shoal.ChoiceQuestion)
        return question.choose("yes")

    ended = await Writer(script).run(tmp_path, on_question=answer)
    assert ended is not None
    assert ended.value == ["yes"] * 20
    assert (answered, most <= 5) == (20, True)


@pytest.mark.spec("WFL-08")
async def test_the_tool_exists_only_if_a_setting_enables_it(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"])) as session:
        assert "Workflow" not in session.agent.tools
    async with Writer("").open(tmp_path) as session:
        assert "Workflow" in session.agent.tools


@pytest.mark.spec("WFL-08")
async def test_a_script_starts_no_more_agents_than_were_approved(tmp_path: Path) -> None:
    script = """
async def main(flow):
    return await flow.map("general-purpose", [str(n) for n in range(10)], at_once=1)
"""
    writer = Writer(script, max_agents=3)
    ended = await writer.run(tmp_path)
    assert ended is not None
    assert ended.status == "failed"
    assert "only 3 agents were approved" in ended.detail
    assert writer.prompts == ["0", "1", "2"]


def is_long_sleep(event: Event) -> bool:
    return isinstance(event, WorkflowStepStarted) and event.preview == "100000.0 s"


@pytest.mark.spec("WFL-08")
async def test_a_script_is_stopped_and_resumed_without_repeating_its_agents(tmp_path: Path) -> None:
    script = """
async def main(flow):
    first = await flow.agent("general-purpose", "first")
    before = [flow.random(), flow.now().isoformat()]
    await flow.sleep(0.01)
    if (await flow.shell("cat gate")).exit_code != 0:
        await flow.sleep(100_000)
    return [first, before, await flow.agent("general-purpose", "second")]
"""
    writer = Writer(script)
    async with writer.open(tmp_path) as session:
        sleeping = asyncio.Event()
        session.subscribe(lambda event: sleeping.set() if is_long_sleep(event) else None)
        await session.run("go")
        async with asyncio.timeout(60):
            await sleeping.wait()
        (running,) = session.workflows._running.values()
        assert await session.stop_task(running.id) == f"workflow {running.id}"
        assert running.ended is not None
        assert running.ended.status == "stopped"
        ident = session.id
    assert writer.prompts == ["first"]
    (tmp_path / "gate").write_text("open")
    async with writer.open(tmp_path, resume=ident) as session:
        # The long sleep is recorded as started, and runs again only from that step on.
        value = await session.workflows.scripts.resume_in_foreground(running.id, rerun_from=5)
    assert value[0] == "did first"
    assert value[2] == "did second"
    assert writer.prompts == ["first", "second"]


ESCAPES = {
    "file": "open('/etc/passwd').read()",
    "directory": "__import__('os').listdir('/')",
    "write": "open('/tmp/escaped', 'w')",
    "socket": "__import__('_socket').socket()",
    "fork": "__import__('os').fork()",
    "exec": "__import__('os').execv('/bin/sh', ['sh'])",
    "posix_spawn": "__import__('os').posix_spawn('/bin/sh', ['sh'], {})",
    "subprocess": "__import__('subprocess').run(['id'])",
    "kill": "__import__('os').kill(__import__('os').getppid(), 9)",
    "parent environment": "open(f'/proc/{__import__(\"os\").getppid()}/environ').read()",
    "own environment file": "open('/proc/self/environ').read()",
    "thread": "__import__('_thread').start_new_thread(print, ())",
    "memory limit": "__import__('resource').setrlimit(__import__('resource').RLIMIT_AS, (-1, -1))",
}


@pytest.fixture(name="driver", params=["bubblewrap", "Landlock"])
def select_driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Landlock":
        landlock = LandlockSandboxDriver()
        if (problem := landlock.explain_unavailable()) is not None:
            pytest.skip(problem)
        monkeypatch.setattr(script_host, "list_sandbox_drivers", lambda path: (landlock,))
    return str(request.param)


@pytest.mark.spec("WFL-09")
@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.usefixtures("driver")
async def test_a_script_cannot_leave_its_process(tmp_path: Path, name: str) -> None:
    ended = await Writer(f"async def main(flow):\n    return str({ESCAPES[name]})\n").run(tmp_path)
    assert ended is not None
    assert ended.status == "failed"
    assert "Error: " in ended.detail
    assert not Path("/tmp/escaped").exists()


SYSTEM_CALLS = """
import sys

async def main(flow):
    ctypes = sys.modules["ctypes"]
    libc = ctypes.CDLL(None, use_errno=True)
    errors = {}
    # open, socket, fork, execve, ptrace, mount, kill of everything, unshare
    for number, arguments in {
        2: (b"/etc/passwd", 0), 257: (-100, b"/etc/passwd", 0), 41: (2, 1, 0), 57: (),
        59: (b"/bin/sh", None, None),
        101: (0, 1, 0, 0), 165: (None, b"/", None, 0, None), 62: (-1, 9), 272: (0x10000000,), 435: (None, 0),
        425: (1, None), 310: (1, None, 0, None, 0, 0),
    }.items():
        result = libc.syscall(number, *arguments)
        errors[number] = [result, ctypes.get_errno()]
    return errors
"""


@pytest.mark.spec("WFL-09")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls differ")
@pytest.mark.usefixtures("driver")
async def test_system_calls_by_number_are_refused(tmp_path: Path) -> None:
    ended = await Writer(SYSTEM_CALLS).run(tmp_path)
    assert ended is not None
    assert ended.status == "completed", ended.detail
    assert set(map(tuple, ended.value.values())) == {(-1, 1)}


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
CALLS = """
read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn
sched_yield mremap madvise getpid exit futex clock_gettime clock_getres clock_nanosleep exit_group
epoll_ctl epoll_pwait gettid sigaltstack getrandom restart_syscall nanosleep getrusage
"""


@pytest.mark.spec("WFL-09")
@pytest.mark.parametrize(("machine", "own"), [("x86_64", ["poll", "epoll_wait"]), ("aarch64", ["ppoll"])])
def test_the_filter_of_each_machine_has_the_numbers_of_the_same_calls(machine: str, own: list[str]) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the headers of the kernel are not installed")
    names = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", HEADERS[machine].read_text())
    numbers = {name: int(number) for name, number in names}
    assert set(script_process.ALLOWED_CALLS[machine]) == {numbers[name] for name in (*CALLS.split(), *own)}


@pytest.mark.spec("WFL-09")
@pytest.mark.usefixtures("driver")
async def test_a_script_has_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "hidden")
    ended = await Writer("async def main(flow):\n    return dict(__import__('os').environ)\n").run(tmp_path)
    assert ended is not None
    assert ended.status == "completed", ended.detail
    # Bubblewrap and the guardian set variables of their own.
    assert set(ended.value) <= {"PWD", "SHOAL_GUARDIAN", "LC_CTYPE"}


RAW = "import os, struct\nasync def main(flow):\n    os.write(1, {data})\n    await flow.sleep(1)\n"


@pytest.mark.spec("WFL-09")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("struct.pack('>I', 0xFFFFFFFF) + b'x'", "has 4,294,967,295 bytes, but the limit is 1,048,576"),
        ("struct.pack('>I', 3) + b'{{{'", "violates the protocol"),
        ("struct.pack('>I', 2) + b'{}'", "violates the protocol"),
        ("struct.pack('>I', 2) + b'\\xff\\xfe'", "violates the protocol"),
        ('struct.pack(\'>I\', 26) + b\'{"type":"exec","id":123456}\'[:26]', "violates the protocol"),
        ("struct.pack('>I', 5000) + b'[' * 5000", "violates the protocol"),
    ],
)
async def test_a_message_that_breaks_the_protocol_ends_the_script(
    tmp_path: Path, data: str, expected: str
) -> None:
    ended = await Writer(RAW.format(data=data)).run(tmp_path)
    assert ended is not None
    assert ended.status == "failed"
    assert expected in ended.detail


LIMITS = {
    "memory": ("x = 'x' * 10**10", "MemoryError"),
    "processor time": ("while True: pass", "endless loop"),
    "ignored signal": (
        "s = __import__('_signal'); s.signal(24, s.SIG_IGN)\n    while True: pass",
        "endless loop",
    ),
    "steps": ("while True: flow.random()", "called more than 50 steps"),
    "phases": ("while True: flow.phase('x')", "called more than 50 steps"),
    "error output": (
        "while True: __import__('os').write(2, b'x' * 65536)",
        "bytes of error output",
    ),
    "expression": (
        "return await flow.agent('Plan', 'x', schema={'items': {'type': 'string', 'pattern': '^(a+)+$'}})",
        "cannot use pattern",
    ),
    "malformed schema": (
        "return await flow.agent('Plan', 'x', schema={'type': 'object', 'required': 5})",
        "the JSON Schema cannot be used: required: it is malformed",
    ),
    "waits": ("await __import__('asyncio').Event().wait()", "it is waiting for something other than a step"),
    "exit": ("__import__('os')._exit(7)", "without a result (status 7)"),
    "large value": ("return 'x' * 2_000_000", "but the limit is 1,048,576"),
    "no JSON": ("return object()", "TypeError"),
    "raises": ("return 1 / 0", "ZeroDivisionError: division by zero (line 2: return 1 / 0)"),
    "unknown agent": ("return await flow.agent('nobody', 'x')", "nobody"),
    "empty prompt": ("return await flow.agent('general-purpose', '')", "violates the protocol"),
}


@pytest.mark.spec("WFL-09")
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.sampled(5)
async def test_a_script_that_exceeds_a_limit_ends_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(script_host, "CPU_SECONDS", 1)
    if name == "waits":
        monkeypatch.setattr(script_host, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr("shoal.app.workflows.script_workflows.MAX_SCRIPT_STEPS", 50)
    body, expected = LIMITS[name]
    writer = Writer(f"async def main(flow):\n    {body}\n")
    ended = await writer.run(tmp_path)
    assert ended is not None
    assert ended.status == "failed"
    assert expected in ended.detail
    assert "<status>failed</status>" in writer.notices[0]


@pytest.mark.spec("WFL-09")
async def test_a_script_can_ask_for_any_number_of_steps_at_once(tmp_path: Path) -> None:
    body = 'return await flow.map("general-purpose", ["a", "b"], at_once=10**9)'
    ended = await Writer(f"async def main(flow):\n    {body}\n").run(tmp_path)
    assert ended is not None
    assert ended.value == ["did a", "did b"]


@pytest.mark.spec("WFL-09")
async def test_a_script_that_loops_on_a_busy_machine_is_not_said_to_be_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_host, "IDLE_SECONDS", 1.0)
    ended = await Writer("async def main(flow):\n    while True: pass\n").run(tmp_path)
    assert ended is not None
    assert ended.status == "failed"
    assert "it called no step for 1 s: it is in an endless loop, or" in ended.detail


@pytest.mark.spec("WFL-09")
async def test_a_script_that_catches_every_refusal_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_host, "CPU_SECONDS", 2)
    monkeypatch.setattr(script_host, "MAX_REFUSED_STEPS", 20)
    body = "try: await flow.agent('general-purpose', 'x')\n        except BaseException: pass"
    ended = await Writer(f"async def main(flow):\n    while True:\n        {body}\n").run(tmp_path)
    assert ended is not None
    assert ended.status == "failed"
    assert "it continued after more than 20 of its steps were refused" in ended.detail


@pytest.mark.spec("WFL-09")
async def test_a_script_is_refused_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_host, "list_sandbox_drivers", lambda path: ())
    writer = Writer("async def main(flow): return 1\n")
    assert await writer.run(tmp_path) is None
    assert "only in a sandbox, and none is available" in writer.result


@pytest.mark.parametrize(
    ("tool_input", "expected"),
    [
        ({"script": "async def main(flow:\n"}, "is not valid Python"),
        ({"script": None}, "Pass either script or resume"),
        ({"script": "x = 1\n" * 401}, "more than 400 lines"),
        (
            {"script": f"async def main(flow):\n    x = 1{' ' * 600}; await flow.shell('ls')\n"},
            "Line 2 of the script has 633 characters; the maximum is 400",
        ),
        (
            {"script": "async def main(flow):\r    await flow.shell('ls')\r    return 1\n"},
            "Line 1 of the script contains U+000D, which people cannot see",
        ),
        (
            {"script": "async def main(flow):\n    return 1  # \u202e(x)llehs.wolf tiawa\n"},
            "Line 2 of the script contains U+202E, which people cannot see",
        ),
        ({"max_agents": 100_000}, "max_agents"),
        ({"script": None, "resume": "job-missing"}, "no script workflow 'job-missing'"),
    ],
)
async def test_bad_input_is_explained_to_the_model(
    tmp_path: Path, tool_input: dict[str, Any], expected: str
) -> None:
    writer = Writer("async def main(flow): return 1\n", **tool_input)
    writer.input = {key: value for key, value in writer.input.items() if value is not None}
    assert await writer.run(tmp_path) is None
    assert expected in writer.result
