"""Runs the script of a model in a sandboxed process, and its steps in this one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from shoal.app.model_notices import format_session_notice
from shoal.app.runtime.runtime import Runtime
from shoal.app.workflows.step_runner import StepRunner
from shoal.backends.sandbox.sandbox_driver import SandboxDriver
from shoal.backends.sandbox.sandbox_selection import detect_sandbox_driver, list_sandbox_drivers
from shoal.core.errors import ProcessError, RunFailed, WorkflowChanged, WorkflowError
from shoal.core.output_type import OutputType
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ChildProcessHandle, ProcessLaunchSpec
from shoal.core.task_groups import open_task_group
from shoal.tools.command_output import CommandOutputPipe
from shoal.wire.workflow_step_codec import (
    HEADER_BYTES,
    AgentStepRequest,
    AskStepRequest,
    PhaseRequest,
    RandomStepRequest,
    ScriptMessage,
    ScriptProtocolError,
    ScriptRaised,
    ScriptReturned,
    ShellStepRequest,
    SleepStepRequest,
    StepRequest,
    TimeStepRequest,
    encode_script_start,
    encode_step_error,
    encode_step_result,
    parse_frame_length,
    parse_script_message,
)

MAX_SCRIPT_STEPS = 10_000
MEMORY_BYTES = 512 * 1024 * 1024
CPU_SECONDS = 60
IDLE_SECONDS = 120.0
"""Seconds that a script may take without a step in progress."""
MAX_REFUSED_STEPS = 2_000
"""Steps that are refused before a script is ended: it may catch each error and call the next one."""
_PROGRAM = Path(__file__).parents[2] / "backends" / "sandbox" / "script_process.py"
_NO_FILTER_STATUS = 3
_KILLED_STATUSES = {-24: "time", 152: "time", -9: "limit", 137: "limit"}
_MAX_OPEN_REQUESTS = 2_000
_MAX_ERROR_OUTPUT = 4_000
_MAX_ERROR_BYTES = 1024 * 1024
"""Error output of a script that is read before the script is ended."""
_QUESTIONS_AT_ONCE = 5
"""Questions of a script that a person sees at the same time."""


async def select_script_sandbox(runtime: Runtime) -> SandboxDriver:
    """Return the sandbox for scripts. Raises `WorkflowError` if there is none: scripts never run without
    one."""
    if sys.platform != "linux":
        raise WorkflowError(format_session_notice("script_needs_linux"))
    drivers = list_sandbox_drivers(runtime.settings.environ.get("PATH", os.defpath))
    detected = await asyncio.to_thread(detect_sandbox_driver, drivers)
    if detected.driver is None:
        raise WorkflowError(
            format_session_notice("script_needs_sandbox", problems="; ".join(detected.problems))
        )
    return detected.driver


class ScriptHost:
    """One run of a script: starts its process, and answers its requests with the results of steps."""

    def __init__(self, runtime: Runtime, steps: StepRunner, driver: SandboxDriver) -> None:
        self._runtime = runtime
        self._steps = steps
        self._driver = driver
        self._open: set[asyncio.Task[None]] = set()
        self._refused_count = 0
        self._changed: WorkflowError | None = None
        self._questions = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def run(self, script: str, arguments: dict[str, Any]) -> Any:
        """Return what the script returns, as JSON. Raises `WorkflowError`."""
        error_output, flooded = bytearray(), asyncio.Event()
        received = 0

        def keep_error_output(data: bytes) -> None:
            nonlocal received
            received += len(data)
            error_output.extend(data)
            del error_output[:-_MAX_ERROR_OUTPUT]
            if received > _MAX_ERROR_BYTES:
                flooded.set()

        async with self._start_process(keep_error_output) as (process, reader, writer):
            writer.write(encode_script_start(script, arguments))
            try:
                message = await self._serve_requests_unless(flooded, reader, writer)
            except ScriptProtocolError as error:
                raise WorkflowError(format_session_notice("script_stopped", error=error)) from error
            match message:
                case ScriptReturned(value=value):
                    return value
                case ScriptRaised(message=text):
                    raise WorkflowError(format_session_notice("script_failed", text=text))
                case None:
                    status = await process.wait()
                    raise WorkflowError(_describe_early_end(status, bytes(error_output)))

    async def _serve_requests_unless(
        self, flooded: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ScriptReturned | ScriptRaised | None:
        """Serve requests. Raises `ScriptProtocolError` if the script writes too much error output."""
        async with open_task_group() as tasks:
            serving = tasks.create_task(self._serve_requests(tasks, reader, writer))
            watching = tasks.create_task(flooded.wait())
            try:
                await asyncio.wait([serving, watching], return_when=asyncio.FIRST_COMPLETED)
                if not serving.done():
                    raise ScriptProtocolError(
                        format_session_notice("script_error_output", maximum=f"{_MAX_ERROR_BYTES:,}")
                    )
                return serving.result()
            finally:
                for task in (serving, watching, *self._open):
                    task.cancel()

    @asynccontextmanager
    async def _start_process(
        self, on_error_output: Any
    ) -> AsyncIterator[tuple[ChildProcessHandle, asyncio.StreamReader, asyncio.StreamWriter]]:
        error_pipe = CommandOutputPipe(on_error_output)
        child_input, own_output = os.pipe()
        own_input, child_output = os.pipe()
        reader, read_transport, writer = await _open_streams(own_input, own_output)
        try:
            try:
                process = await self._runtime.processes.launcher.start_process(
                    self._build_launch(child_input, child_output, error_pipe.writer)
                )
            except ProcessError as error:
                raise WorkflowError(format_session_notice("script_not_started", error=error)) from error
            finally:
                error_pipe.close_writer()
                os.close(child_input)
                os.close(child_output)
            try:
                yield process, reader, writer
            finally:
                await process.stop(grace=0)
        finally:
            writer.close()
            read_transport.close()
            error_pipe.read_rest_and_close()

    def _build_launch(self, stdin: int, stdout: int, stderr: int) -> ProcessLaunchSpec:
        # The interpreter itself: the link of a virtual environment may be hidden in the sandbox.
        python = os.path.realpath(sys.executable)
        arguments = (str(_PROGRAM), str(MEMORY_BYTES), str(CPU_SECONDS))
        launch = ProcessLaunchSpec(
            argv=(python, "-I", "-S", "-E", "-X", "utf8", *arguments),
            cwd=Path("/"),
            env={},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        policy = SandboxPolicy(writable=(), network=False)
        if self._driver.find_unsupported_policy_part(policy) is not None:
            # The script's own filter of system calls blocks the network too.
            policy = SandboxPolicy(writable=())
        return self._driver.wrap_launch(launch, policy)

    async def _serve_requests(
        self, tasks: asyncio.TaskGroup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ScriptReturned | ScriptRaised | None:
        """Answer requests until the script ends; None if it ends without a result."""
        while True:
            message = await self._read_message(tasks, reader)
            if self._changed is not None:
                raise self._changed
            match message:
                case None | ScriptReturned() | ScriptRaised():
                    return message
                case PhaseRequest(id=request, name=name):
                    # In this task, so that it applies to all later requests.
                    self._steps.start_phase(name)
                    writer.write(encode_step_result(request, None))
                case _:
                    if self._refused_count > MAX_REFUSED_STEPS:
                        raise ScriptProtocolError(
                            format_session_notice("script_refused_steps", maximum=f"{MAX_REFUSED_STEPS:,}")
                        )
                    if len(self._open) >= _MAX_OPEN_REQUESTS:
                        raise ScriptProtocolError(
                            format_session_notice("script_open_requests", maximum=f"{_MAX_OPEN_REQUESTS:,}")
                        )
                    task = tasks.create_task(self._answer_request(message, writer))
                    self._open.add(task)
                    task.add_done_callback(self._open.discard)

    async def _read_message(
        self, tasks: asyncio.TaskGroup, reader: asyncio.StreamReader
    ) -> ScriptMessage | None:
        read = tasks.create_task(_read_frame(reader))
        try:
            while not read.done():
                if self._changed is not None:
                    return None
                if not self._open:
                    try:
                        async with self._runtime.clock.deadline(IDLE_SECONDS):
                            await asyncio.wait([read])
                    except TimeoutError:
                        raise ScriptProtocolError(
                            format_session_notice("script_idle", seconds=f"{IDLE_SECONDS:g}")
                        ) from None
                else:
                    await asyncio.wait([read, *self._open], return_when=asyncio.FIRST_COMPLETED)
            data = read.result()
        finally:
            read.cancel()
        return None if data is None else parse_script_message(data)

    async def _answer_request(self, request: StepRequest, writer: asyncio.StreamWriter) -> None:
        try:
            answer = encode_step_result(request.id, await self._run_step(request))
        except RunFailed as error:
            answer = encode_step_error(request.id, "RunFailed", str(error))
        except WorkflowChanged as error:
            # The script must not catch this: its later steps would run on other results.
            self._changed = error
            return
        except (TypeError, ValueError, WorkflowError) as error:
            self._refused_count += 1
            answer = encode_step_error(request.id, "WorkflowError", str(error))
        if writer.transport.is_closing():
            return  # the script has ended
        try:
            writer.write(answer)
            await writer.drain()
        except ConnectionError:
            pass  # the script has ended, which its reader notices

    async def _run_step(self, request: StepRequest) -> Any:
        steps = self._steps
        match request:
            case AgentStepRequest(agent=agent, prompt=prompt, schema=schema):
                _refuse_patterns(schema)
                answer = None if schema is None else OutputType.from_schema(schema)
                options: Any = {
                    key: value
                    for key, value in (("model", request.model), ("isolation", request.isolation))
                    if value is not None
                }
                value = await steps.run_agent(self._join_path(request.path), agent, prompt, answer, options)
                return value["text"] if answer is None else value["answer"]
            case AskStepRequest(path=path, question=question, options=choices):
                async with self._questions:
                    return await steps.ask_person(self._join_path(path), question, choices)
            case ShellStepRequest(path=path, command=command, timeout=timeout):
                result = await steps.run_command(self._join_path(path), command, timeout)
                return {"exit_code": result.exit_code, "text": result.text}
            case SleepStepRequest(path=path, seconds=seconds):
                return await steps.sleep(self._join_path(path), seconds)
            case TimeStepRequest(path=path):
                return steps.get_time(self._join_path(path))
            case RandomStepRequest(path=path):
                return steps.get_random_number(self._join_path(path))

    def _join_path(self, path: str) -> str:
        return f"{self._steps.phase}/{path}" if self._steps.phase else path


def _refuse_patterns(schema: Any) -> None:
    """Raise `WorkflowError` for regular expressions: one of a script could keep this process busy forever."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str) or "patternProperties" in schema:
            raise WorkflowError(format_session_notice("script_schema"))
        for part in schema.values():
            _refuse_patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            _refuse_patterns(part)


async def _open_streams(
    input_fd: int, output_fd: int
) -> tuple[asyncio.StreamReader, asyncio.ReadTransport, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    read_transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(input_fd, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(output_fd, "wb", buffering=0)
    )
    return reader, read_transport, asyncio.StreamWriter(transport, protocol, None, loop)


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next message; None at the end. Raises `ScriptProtocolError`."""
    try:
        header = await reader.readexactly(HEADER_BYTES)
        return await reader.readexactly(parse_frame_length(header))
    except asyncio.IncompleteReadError:
        return None


def _describe_early_end(status: int, error_output: bytes) -> str:
    text = error_output.decode(errors="replace").strip()
    if status == _NO_FILTER_STATUS:
        return f"The script was refused because it cannot be isolated here: {text}"
    if status in _KILLED_STATUSES:
        return (
            f"The script was killed: it used more than {CPU_SECONDS} s of CPU time (it may be in an endless "
            f"loop) or more than {MEMORY_BYTES // 1024 // 1024:,} MB of memory."
        )
    return f"The script's process ended without a result (status {status}). {text}".strip()
