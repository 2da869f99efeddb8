"""Commands in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shell_workbench import ShellWorkbench, get_text, open_workbench

from elapsed_times import MeasuredWork, is_done_within
from shoal.tools import command_output
from shoal.tools.command_environment import is_provider_secret_variable
from shoal.tools.command_output import OUTPUT_LIMIT


async def _read_pipe(fifo: Path) -> str:
    """Read the text that a process writes into a named pipe."""
    return await asyncio.to_thread(fifo.read_text)


async def test_standard_output_and_error_are_returned_in_order(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash("echo one; echo two >&2; echo three")
    assert outcome.content == "one\ntwo\nthree"
    assert not outcome.is_error
    assert outcome.data is not None
    assert outcome.data["exit_code"] == 0


async def test_a_nonzero_exit_code_is_reported_as_an_error(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash("echo seen; exit 3")
    assert outcome.content == "seen\n[Exit code 3.]"
    assert outcome.is_error


async def test_the_result_of_a_command_without_output_says_so(workbench: ShellWorkbench) -> None:
    assert (await workbench.run_bash("true")).content == "(no output)"


async def test_the_signal_that_ended_a_command_is_named(workbench: ShellWorkbench) -> None:
    assert "[Killed by signal SIGKILL.]" in get_text(await workbench.run_bash("kill -9 $$"))


async def test_a_command_may_contain_lines_quotes_and_here_documents(workbench: ShellWorkbench) -> None:
    command = "cat <<'END'\n$HOME \"quoted\" 'single' `tick`\nEND\nprintf '%s\\n' \"it's\" # a comment"
    assert (await workbench.run_bash(command)).content == "$HOME \"quoted\" 'single' `tick`\nit's"


async def test_a_syntax_error_of_a_command_is_reported(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash("if true; then echo")
    assert outcome.is_error
    assert "syntax error" in get_text(outcome)


@pytest.mark.spec("BCK-05")
async def test_each_command_has_an_empty_input_and_no_terminal(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash("cat; tty; (: </dev/tty) 2>/dev/null || echo no terminal")
    assert outcome.content == "not a tty\nno terminal"


AT_A_TERMINAL = """
import asyncio, sys
from pathlib import Path
from shell_workbench import open_workbench

async def main():
    async with open_workbench(Path(sys.argv[1])) as bench:
        open("/dev/tty").close()
        print("It says:", (await bench.run_bash("(: </dev/tty) 2>/dev/null || echo no terminal")).content)

asyncio.run(main())
"""


@pytest.mark.spec("BCK-05")
def test_a_command_has_no_terminal_even_if_the_session_has_one(tmp_path: Path) -> None:
    spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", spawn, sys.executable, "-c", AT_A_TERMINAL, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "It says: no terminal" in done.stdout, done.stdout + done.stderr


@pytest.mark.spec("BCK-05")
async def test_each_command_is_a_new_shell(workbench: ShellWorkbench) -> None:
    await workbench.run_bash("here=1; export there=1; shopt -s nullglob")
    assert (
        await workbench.run_bash("echo [$here$there]; shopt nullglob")
    ).content == "[]\nnullglob       \toff\n[Exit code 1.]"


@pytest.mark.spec("BCK-06")
async def test_commands_get_the_environment_of_the_person_and_the_variables_of_shoal(tmp_path: Path) -> None:
    async with open_workbench(tmp_path, MINE="yes") as workbench:
        names = "CLAUDECODE CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS CLAUDE_CODE_ENTRYPOINT SHOAL GIT_EDITOR MINE"
        seen = get_text(await workbench.run_bash(f"for n in {names}; do echo ${{!n}}; done; env"))
    assert seen.splitlines()[:6] == ["1", "1", "cli", "1", "true", "yes"]
    assert not [line for line in seen.splitlines() if line.startswith("TMUX_PANE") or "AGENT_ID" in line]


SECRETS = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "GEMINI_API_KEY",
]


async def test_commands_never_see_a_providers_key(tmp_path: Path) -> None:
    kept = {"ANTHROPIC_BASE_URL": "kept-url", "GITHUB_TOKEN": "kept-token", "MY_API_KEY": "kept-key"}
    async with open_workbench(tmp_path, **dict.fromkeys(SECRETS, "s3cret"), **kept) as workbench:
        seen = get_text(await workbench.run_bash("env; cat /proc/$$/environ | tr '\\0' '\\n'"))
    assert "s3cret" not in seen
    assert all(value in seen for value in kept.values())


@pytest.mark.parametrize("name", ["CLAUDE_CODE_MAX_OUTPUT_TOKENS", "ANTHROPIC_MODEL", "KEY", "MONKEY"])
def test_variables_of_settings_are_not_taken_for_secrets(name: str) -> None:
    assert not is_provider_secret_variable(name)


# The working directory


@pytest.mark.parametrize(
    "command",
    [
        "cd sub",
        "cd sub; exit 0",
        "set -e; cd sub; true",
        "cd sub && (cd /; true)",
        "trap 'true' EXIT; cd sub",
        "pwd() { echo /wrong; }; cd sub",
        "set -o noclobber; cd sub",
        "set -u; cd sub",
        "exec 2>&1 >/dev/null; cd sub",
    ],
)
async def test_the_working_directory_is_kept_between_calls(workbench: ShellWorkbench, command: str) -> None:
    (workbench.project / "sub").mkdir()
    outcome = await workbench.run_bash(command)
    assert f"[The working directory is now {workbench.project}/sub.]" in get_text(outcome)
    assert (await workbench.run_bash("pwd")).content == f"{workbench.project}/sub"


async def test_the_working_directory_is_kept_after_a_failed_command(workbench: ShellWorkbench) -> None:
    (workbench.project / "sub").mkdir()
    outcome = await workbench.run_bash("set -e; cd sub; false; echo not reached")
    assert outcome.is_error
    assert workbench.workspace.cwd == workbench.project / "sub"


async def test_the_working_directory_is_kept_after_exec(workbench: ShellWorkbench) -> None:
    assert (await workbench.run_bash("cd /; exec echo replaced")).content == "replaced"
    assert workbench.workspace.cwd == workbench.project


async def test_a_command_that_leaves_the_project_is_reset_to_it_with_a_notice(
    workbench: ShellWorkbench,
) -> None:
    outcome = await workbench.run_bash("cd /etc; pwd")
    assert outcome.content == (
        f"/etc\n[The command ended in /etc, which is outside the project, so the working directory is "
        f"{workbench.project} again.]"
    )
    assert (await workbench.run_bash("pwd")).content == str(workbench.project)


async def test_a_link_does_not_move_the_working_directory_out_of_the_project(
    workbench: ShellWorkbench,
) -> None:
    (workbench.project / "out").symlink_to("/etc")
    assert "outside the project" in get_text(await workbench.run_bash("cd out"))
    assert workbench.workspace.cwd == workbench.project


async def test_a_deleted_working_directory_is_replaced(workbench: ShellWorkbench) -> None:
    await workbench.run_bash("mkdir sub; cd sub")
    await workbench.run_bash("rmdir ../sub")
    outcome = await workbench.run_bash("pwd")
    assert get_text(outcome).startswith(f"{workbench.project}\n[")
    assert "sub is gone" in get_text(outcome)


@pytest.mark.spec("USR-29")
async def test_hostile_directory_names_are_never_executed(workbench: ShellWorkbench) -> None:
    for name in [
        "$(touch x)",
        "`touch x`",
        "; touch x;",
        "' touch x '",
        '" && touch x "',
        "-rf",
        "a\nb",
        "\udcff",
    ]:
        (workbench.project / name).mkdir()
        workbench.workspace.change_directory(workbench.project / name)
        assert (await workbench.run_bash('test "$PWD" -ef . && cd . && echo here')).content == "here"
        assert workbench.workspace.cwd == workbench.project / name
        workbench.workspace.change_directory(workbench.project)
    assert not list(workbench.project.rglob("x"))


# Output


async def test_long_output_is_truncated_in_the_middle_and_complete_in_a_file(
    workbench: ShellWorkbench,
) -> None:
    outcome = await workbench.run_bash("seq 1 100000")
    whole = "".join(f"{n}\n" for n in range(1, 100_001))
    assert outcome.data is not None
    file = Path(outcome.data["output_file"])
    assert file.read_text() == whole
    shown = get_text(outcome)
    assert shown.startswith("1\n2\n3\n")
    assert shown.endswith("99999\n100000")
    assert f"{len(whole) - OUTPUT_LIMIT:,} characters are omitted here; the full output is in {file}" in shown
    assert len(shown) < OUTPUT_LIMIT + 300 + len(str(workbench.results.directory))


async def test_output_at_the_limit_is_complete_and_needs_no_file(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash(f"head -c {OUTPUT_LIMIT} /dev/zero | tr '\\0' x")
    assert outcome.content == "x" * OUTPUT_LIMIT
    assert not workbench.results.directory.exists()


async def test_endless_output_is_bounded_in_memory_and_on_disk(
    workbench: ShellWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_output, "MAX_FILE_BYTES", 4 << 20)
    before = _measure_memory()
    outcome = await workbench.run_bash("yes", timeout=700)
    shown = get_text(outcome)
    assert "the first 4 MB are in" in shown
    assert "time limit of 0.7 s" in shown
    assert len(shown) < OUTPUT_LIMIT + 300 + len(str(workbench.results.directory))
    assert (workbench.results.directory / "call_1.txt").stat().st_size == 4 << 20
    assert _measure_memory() - before < 10_000_000


async def test_ten_megabytes_on_one_line_are_stored_in_the_file(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash("head -c 10000000 /dev/zero | tr '\\0' x")
    assert not outcome.is_error
    assert (workbench.results.directory / "call_1.txt").stat().st_size == 10_000_000


def _measure_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_full_disk_does_not_stop_the_command(
    workbench: ShellWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench.results, "save_result", lambda name, content: Path("/dev/full"))
    outcome = await workbench.run_bash("seq 1 20000; echo done")
    assert not outcome.is_error
    assert "could not be saved: [Errno 28] No space left on device" in get_text(outcome)
    assert get_text(outcome).endswith("20000\ndone")


async def test_escape_codes_and_control_characters_do_not_reach_the_model(workbench: ShellWorkbench) -> None:
    coloured = r"\033[1;31mred\033[0m \033]0;title\007\033]8;;http://x\033\\link\033]8;;\033\\ "
    assert (
        await workbench.run_bash(f"printf '{coloured}'" + r"'a\000b\b\r\nc\rd'")
    ).content == "red link a�b\nc\nd"


async def test_bytes_that_are_not_utf8_become_replacement_marks(workbench: ShellWorkbench) -> None:
    assert (await workbench.run_bash(r"printf 'caf\xe9 \xff\xc3\xa9 \xe2\x82'")).content == "caf� �é �"


# The end


async def test_a_command_ends_with_its_shell_although_a_child_holds_the_output(
    workbench: ShellWorkbench,
) -> None:
    started = time.monotonic()
    outcome = await workbench.run_bash("sleep 60 & echo started")
    assert time.monotonic() - started < 30
    assert get_text(outcome).startswith("started\n[A process it started is still running")
    assert not outcome.is_error


@pytest.mark.spec("USR-07")
@pytest.mark.parametrize(
    "command",
    ["echo some; sleep 60", "echo some; kill -STOP $$", "trap '' TERM; echo some; sleep 60; sleep 60"],
)
async def test_a_timed_out_command_is_ended_within_a_second(workbench: ShellWorkbench, command: str) -> None:
    async def run_command() -> None:
        outcome = await workbench.run_bash(command, timeout=400)
        assert outcome.is_error
        assert outcome.content == "some\n[The command was killed after its time limit of 0.4 s.]"

    async def start_shell() -> MeasuredWork:
        await workbench.run_bash("true")
        return run_command

    assert await is_done_within(0.4 + 1, start_shell)


async def test_every_process_of_a_timed_out_command_is_ended(
    workbench: ShellWorkbench, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    await workbench.run_bash(
        f"(sleep 60 & echo $! >> {pids}; setsid sleep 60 & echo $! >> {pids}; wait)", timeout=500
    )
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


async def test_a_cancelled_call_ends_its_command_and_stays_cancelled(
    workbench: ShellWorkbench, tmp_path: Path
) -> None:
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    running = asyncio.ensure_future(workbench.run_bash(f"echo $$ > {fifo}; sleep 60"))
    pid = int(await _read_pipe(fifo))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    # Cancelled before it was known to have started, it is killed without being waited for.
    async with asyncio.timeout(30):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_a_killed_guardian_is_reported_to_the_model(workbench: ShellWorkbench, tmp_path: Path) -> None:
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    running = asyncio.ensure_future(workbench.run_bash(f"echo > {fifo}; sleep 60"))
    await _read_pipe(fifo)
    assert workbench.processes.guardian_pid is not None
    os.kill(workbench.processes.guardian_pid, signal.SIGKILL)
    outcome = await running
    assert outcome.is_error
    assert "guardian process was killed" in get_text(outcome)
    assert (await workbench.run_bash("echo again")).content == "again"


async def test_progress_is_reported_line_by_line_but_not_too_often(workbench: ShellWorkbench) -> None:
    started = time.monotonic()
    await workbench.run_bash("for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n; sleep 0.05; done")
    took = time.monotonic() - started
    assert workbench.progress_texts
    assert len(workbench.progress_texts) <= took * 5 + 1
    assert all(told.startswith("line ") for told in workbench.progress_texts)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"command": "  "}, "The command is empty"),
        ({"command": "echo a\0b"}, "NUL byte"),
        ({"command": "true", "timeout": 600_001}, "at most 600000"),
        ({"command": "true", "timeout": 0}, "at least 1"),
        ({"command": "x" * 200_000}, "Argument list too long"),
        ({"cmd": "true"}, "`command` is missing"),
    ],
)
async def test_invalid_arguments_are_named(
    workbench: ShellWorkbench, arguments: dict[str, object], says: str
) -> None:
    outcome = await workbench.call_tool("Bash", **arguments)
    assert outcome.is_error
    assert says in get_text(outcome)
