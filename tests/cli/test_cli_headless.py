"""`shoal -p`: one prompt in, one result out, and an exit code for the outcome."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from reply_scripts import get_prompt_text
from shoal_process import MODEL, ShoalProgram, wait_for_result

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock
from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, MockReply, SlowStreamFault, make_tool_call


def read_transcript_lines(home: Path, session: str) -> list[dict]:
    (path,) = home.glob(f"projects/*/{session}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_text_output_is_only_the_answer_on_stdout(shoal: ShoalProgram) -> None:
    async with messages_server(["Forty-two."]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "What is six times seven?", "--model", MODEL)
    assert (ran.code, ran.text) == (0, "Forty-two.\n")
    assert "six times seven" in get_prompt_text(server)


async def test_the_prompt_may_come_from_stdin_and_joins_the_argument(shoal: ShoalProgram) -> None:
    async with messages_server(["one", "two"]) as server:
        shoal.use_server(server)
        assert (await shoal("-p", "--model", MODEL, stdin="grüß dich".encode())).code == 0
        assert (await shoal("-p", "Review this:", "--model", MODEL, stdin=b"- old\n+ new\n")).code == 0
    assert "grüß dich" in get_prompt_text(server, 0)
    assert "Review this:\n\n- old\n+ new" in get_prompt_text(server, 1)


async def test_invalid_utf8_is_replaced_with_a_warning(shoal: ShoalProgram) -> None:
    async with messages_server(["one"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", b"caf\xe9", "--model", MODEL, stdin=b"\xff\xfe rest")
    assert ran.code == 0
    assert "caf\ufffd" in get_prompt_text(server)
    assert "\ufffd\ufffd rest" in get_prompt_text(server)
    assert "The prompt is not valid UTF-8" in ran.err
    assert "Standard input is not valid UTF-8" in ran.err


@pytest.mark.spec("TRN-03")
async def test_progress_is_on_stderr_and_only_the_answer_on_stdout(
    shoal: ShoalProgram, project: Path
) -> None:
    (project / "a.txt").write_text("hello\n")
    replies = [["Let me look.", make_tool_call("Read", file_path="a.txt")], "It says hello."]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "read a.txt", "--model", MODEL)
    assert ran.text == "It says hello.\n"
    assert "Read" in ran.err
    assert "\x1b" not in ran.err


async def test_quiet_leaves_stderr_empty(shoal: ShoalProgram, project: Path) -> None:
    (project / "a.txt").write_text("hello\n")
    async with messages_server([make_tool_call("Read", file_path="a.txt"), "done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "read a.txt", "--model", MODEL, "--quiet")
    assert (ran.code, ran.text, ran.err) == (0, "done\n", "")


async def test_verbose_prints_the_usage_of_the_turn(shoal: ShoalProgram) -> None:
    usage = Usage(input_tokens=12_400, output_tokens=50)
    async with messages_server([MockReply(content=(TextBlock(text="hi"),), usage=usage)]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hello", "--model", MODEL, "--verbose")
    assert ran.text == "hi\n"
    assert "1 request · 12.4k tokens in · 50 out · $0.0" in ran.err
    assert "claude-haiku-5-5 · session " in ran.err


@pytest.mark.spec("USR-19")
async def test_json_is_the_result_object_with_the_providers_own_count(shoal: ShoalProgram) -> None:
    usage = Usage(input_tokens=1000, output_tokens=50, cache_read_input_tokens=7)
    async with messages_server([MockReply(content=(TextBlock(text="hi"),), usage=usage)]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hello", "--model", MODEL, "--output-format", "json")
    assert len(ran.lines) == 1
    result = ran.result
    assert (result["type"], result["subtype"], result["is_error"]) == ("result", "success", False)
    assert (result["result"], result["num_turns"], result["permission_denials"]) == ("hi", 1, [])
    assert result["usage"]["input_tokens"] == 1000
    assert result["usage"]["cache_read_input_tokens"] == 7
    (spent,) = result["modelUsage"].values()
    assert spent["outputTokens"] == 50
    assert result["total_cost_usd"] == pytest.approx(spent["costUSD"])
    assert result["total_cost_usd"] > 0
    assert result["duration_ms"] >= result["duration_api_ms"] >= 0


async def test_stream_json_messages_have_their_transcript_ids(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    (project / "a.txt").write_text("hello\n")
    replies = [make_tool_call("Read", file_path="a.txt"), "It says hello."]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "read", "--model", MODEL, "--output-format", "stream-json", "--verbose")
    init, *messages, result = ran.lines
    assert (init["type"], init["subtype"], init["permissionMode"]) == ("system", "init", "default")
    assert init["cwd"] == str(project)
    assert {"Read", "Bash"} <= set(init["tools"])
    assert [line["type"] for line in messages] == ["assistant", "user", "assistant"]
    assert messages[1]["message"]["content"][0]["type"] == "tool_result"
    assert (result["type"], result["result"], result["num_turns"]) == ("result", "It says hello.", 2)
    assert {line["session_id"] for line in ran.lines} == {init["session_id"]}
    assert all(line["parent_tool_use_id"] is None for line in messages)
    written = [entry["uuid"] for entry in read_transcript_lines(home, init["session_id"])]
    assert [line["uuid"] for line in messages] == written[-3:]


async def test_partial_messages_add_up_to_the_answer(shoal: ShoalProgram) -> None:
    async with messages_server([["one two three four", SlowStreamFault(seconds=0.15, size=200)]]) as server:
        shoal.use_server(server)
        wanted = ("--output-format", "stream-json", "--include-partial-messages")
        ran = await shoal("-p", "count", "--model", MODEL, *wanted)
    events = [line["event"] for line in ran.lines if line["type"] == "stream_event"]
    pieces = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
    assert events[0]["message"]["model"] == MODEL.removeprefix("anthropic:")
    assert len(pieces) > 1
    assert "".join(pieces) == "one two three four"


async def test_quiet_omits_the_cost_and_inherit_names_the_configured_model(
    shoal: ShoalProgram, home: Path
) -> None:
    (home / "settings.json").write_text(json.dumps({"model": MODEL, "alwaysThinkingEnabled": False}))
    (home / "commands").mkdir(parents=True)
    (home / "commands/effort.md").write_text("At ${CLAUDE_EFFORT} now.")
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "/effort", "--model", "inherit", "-q", "--verbose")
    assert (ran.code, ran.text.strip(), ran.err) == (0, "done", "")
    (request,) = server.requests
    assert request.body["model"] == MODEL.removeprefix("anthropic:")
    assert "At high now." in str(request.body["messages"])


async def test_a_tool_that_needs_permission_is_denied_and_listed(shoal: ShoalProgram, project: Path) -> None:
    async with messages_server([make_tool_call("Bash", command="touch x"), "I could not."]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "make x", "--model", MODEL, "--output-format", "json")
    (denial,) = ran.result["permission_denials"]
    assert (denial["tool_name"], denial["tool_input"]["command"]) == ("Bash", "touch x")
    assert ran.code == 0
    assert "--allowedTools" in ran.err
    assert not (project / "x").exists()


async def test_a_denied_call_names_the_rule_to_type(shoal: ShoalProgram, project: Path) -> None:
    calls = [
        make_tool_call("Bash", command="touch x"),
        make_tool_call("Write", file_path="a.py", content=""),
        "Done.",
    ]
    async with messages_server([*calls, *calls]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "make x", "--model", MODEL)
        assert "nobody can answer the permission question: Bash, Write." in ran.err
        flag, rules = shlex.split(ran.err.partition("Allow them with ")[2].partition(", or")[0])
        again = await shoal("-p", "make x", "--model", MODEL, flag, rules)
    assert (project / "x").exists()
    assert (project / "a.py").exists()
    assert "nobody" not in again.err


async def test_an_allowed_tool_runs_without_asking(shoal: ShoalProgram, project: Path) -> None:
    async with messages_server([make_tool_call("Bash", command="touch x"), "Made it."]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "make x", "--model", MODEL, "--allowed-tools", "Bash(touch:*)")
    assert (ran.code, ran.text) == (0, "Made it.\n")
    assert (project / "x").exists()


@pytest.mark.spec("RUN-01")
async def test_the_turn_limit_exits_3(shoal: ShoalProgram, project: Path) -> None:
    (project / "a.txt").write_text("hello\n")
    async with messages_server(lambda _: make_tool_call("Read", file_path="a.txt")) as server:
        shoal.use_server(server)
        flags = ("--max-turns", "2", "--output-format", "json")
        ran = await shoal("-p", "read for ever", "--model", MODEL, *flags)
    assert ran.code == 3
    assert (ran.result["subtype"], ran.result["is_error"]) == ("error_max_turns", True)
    assert ran.result["num_turns"] == server.request_count == 2
    assert "--max-turns" in ran.err
    assert f"shoal --resume {ran.result['session_id']}" in ran.err


async def test_a_spent_budget_exits_3(shoal: ShoalProgram, project: Path) -> None:
    (project / "a.txt").write_text("hello\n")
    dear = Usage(input_tokens=2_000_000, output_tokens=1)
    answer = MockReply(content=(make_tool_call("Read", file_path="a.txt", call_id="toolu_1"),), usage=dear)
    async with messages_server(lambda _: answer) as server:
        shoal.use_server(server)
        flags = ("--max-budget-usd", "0.01", "--output-format", "json")
        ran = await shoal("-p", "read", "--model", MODEL, *flags)
    assert (ran.code, ran.result["subtype"], server.request_count) == (3, "error_max_budget_usd", 1)
    assert ran.result["total_cost_usd"] > 0.01


async def test_a_limit_of_tokens_holds_over_the_runs_of_a_session(shoal: ShoalProgram) -> None:
    usage = Usage(input_tokens=500, output_tokens=20)
    async with messages_server(lambda _: MockReply(content=(TextBlock(text="ok"),), usage=usage)) as server:
        shoal.use_server(server)
        limited = ("--model", MODEL, "--max-total-tokens", "1000", "--output-format", "stream-json")
        first = await shoal("-p", "one", *limited)
        second = await shoal("-p", "two", "--continue", *limited)
        third = await shoal("-p", "three", "--continue", *limited)
    assert (first.code, second.code, third.code, server.request_count) == (0, 0, 3, 2)
    assert third.result["subtype"] == "error_max_budget_usd"
    assert (
        "the budget of 1,000 tokens is spent (1,040 tokens). Allow more with --max-total-tokens." in third.err
    )
    warnings = [
        [(line["limit"], line["percent"]) for line in ran.lines if line.get("subtype") == "budget_warning"]
        for ran in (first, second, third)
    ]
    assert warnings == [[("tokens", 50)], [("tokens", 100)], []]
    assert "50% of the budget is spent: 520 tokens of 1,000 tokens" in first.err


async def test_the_money_spent_before_a_session_is_resumed_counts(shoal: ShoalProgram) -> None:
    dear = Usage(input_tokens=2_000_000, output_tokens=1)
    async with messages_server(lambda _: MockReply(content=(TextBlock(text="ok"),), usage=dear)) as server:
        shoal.use_server(server)
        first = await shoal("-p", "one", "--model", MODEL, "--output-format", "json")
        spent = first.result["total_cost_usd"]
        flags = ("--max-budget-usd", str(spent), "--output-format", "json")
        second = await shoal("-p", "two", "--model", MODEL, "--continue", *flags)
    assert (second.code, server.request_count) == (3, 1)
    assert second.result["total_cost_usd"] == spent


@pytest.mark.spec("USR-07")
async def test_the_deadline_exits_4(shoal: ShoalProgram) -> None:
    async with messages_server([["late", DelayedReplyFault(seconds=60)]]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "wait", "--model", MODEL, "--deadline", "0.3s", "--output-format", "json")
    assert (ran.code, ran.result["subtype"]) == (4, "error_during_execution")
    assert ran.result["duration_ms"] < 5000
    assert "deadline" in ran.err


async def test_a_closed_stdout_ends_a_list_command_quietly(shoal: ShoalProgram) -> None:
    async with shoal.start_process("agents", "ls", "--json") as process:
        assert process.stdout is not None
        process.stdout._transport.close()  # type: ignore[attr-defined]
        assert await process.wait() == 141
        assert process.stderr is not None
        assert await process.stderr.read() == b""


async def test_a_closed_stdout_ends_the_run_quietly(shoal: ShoalProgram) -> None:
    async with messages_server(["word " * 50_000]) as server:
        shoal.use_server(server)
        async with shoal.start_process(
            "-p", "talk", "--model", MODEL, "--output-format", "stream-json"
        ) as process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.stdout is not None
            await process.stdout.readline()
            process.stdout._transport.close()  # type: ignore[attr-defined]
            assert await process.wait() == 141
            assert process.stderr is not None
            assert b"rror" not in await process.stderr.read()


async def test_no_color_and_a_pipe_mean_no_escape_codes(shoal: ShoalProgram) -> None:
    async with messages_server(["plain"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL, NO_COLOR="1", FORCE_COLOR="1")
    assert b"\x1b" not in ran.out
    assert "\x1b" not in ran.err


async def test_a_session_continues_with_continue_resume_and_fork(shoal: ShoalProgram, home: Path) -> None:
    async with messages_server(["a1", "a2", "a3", "a4"]) as server:
        shoal.use_server(server)
        common = ("--model", MODEL, "--output-format", "json")
        first = (await shoal("-p", "q1", *common)).result["session_id"]
        assert (await shoal("-p", "q2", "-c", *common)).result["session_id"] == first
        assert (await shoal("-p", "q3", "-r", first[:8], *common)).result["session_id"] == first
        forked = (await shoal("-p", "q4", "-r", first, "--fork-session", *common)).result["session_id"]
    assert forked != first
    roles = [message["role"] for message in server.requests[3].body["messages"]]
    assert roles == ["user", "assistant"] * 3 + ["user"]
    assert len(read_transcript_lines(home, first)) < len(read_transcript_lines(home, forked))


async def test_the_list_of_sessions_keeps_a_row_for_each(shoal: ShoalProgram) -> None:
    async with messages_server(["Yes."]) as server:
        shoal.use_server(server)
        await shoal("-p", "a long prompt " * 20, "--model", MODEL)
    narrow, wide = [(await shoal("sessions", COLUMNS=wide)).text.splitlines()[0] for wide in ("80", "200")]
    assert len(narrow) < 80 < len(wide)


async def test_a_given_session_id_is_used(shoal: ShoalProgram, home: Path) -> None:
    mine = "6f1c0d7e-3b1a-4b7e-9a55-0a2f3d4c5b6a"
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL, "--session-id", mine, "--output-format", "json")
    assert ran.result["session_id"] == mine
    assert read_transcript_lines(home, mine)


async def test_without_persistence_nothing_is_written(shoal: ShoalProgram, home: Path) -> None:
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL, "--no-session-persistence")
    assert ran.code == 0
    assert not list(home.rglob("*.jsonl"))


async def test_a_recorded_run_replays_without_a_server(shoal: ShoalProgram, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    async with messages_server(["recorded"]) as server:
        shoal.use_server(server)
        assert (await shoal("-p", "hi", "--model", MODEL, "--record", str(tape))).code == 0
    again = await shoal("-p", "hi", "--model", f"replay:{tape}")
    assert (again.code, again.text) == (0, "recorded\n")
    unrecorded = await shoal("-p", "something else", "--model", f"replay:{tape}")
    assert unrecorded.code == 1
    assert "something else" in unrecorded.err
    assert "--record" in unrecorded.err


async def test_prompts_wait_for_a_slow_pipe(shoal: ShoalProgram) -> None:
    async with messages_server(["ok"]) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "--model", MODEL) as process:
            assert process.stderr is not None
            notice = await process.stderr.readline()
            ran = await wait_for_result(process, b"finally")
    assert b"waiting for the prompt" in notice
    assert ran.text == "ok\n"
