"""Each bench runs, does its work and shows its figures; how fast is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def bench_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def join_section_lines(section) -> str:
    from bench.figures import format_section

    return "\n".join(format_section(section))


@pytest.mark.exhaustive
def test_the_agent_loop_is_compared_with_a_bare_loop_in_memory_and_on_disk():
    from bench import loop_bench

    text = join_section_lines(
        loop_bench.measure_loop(loop_bench.LoopBenchSize(short=2, long=5, repeats=1, long_repeats=1))
    )
    for row in ("in memory, 2 rounds", "in memory, 5 rounds", "on disk, 2 rounds", "growth"):
        assert row in text
    assert "≤ 80" in text
    assert "≤ 150" in text


@pytest.mark.exhaustive
def test_time_memory_and_reports_of_agents_are_shown():
    from bench import agent_bench

    sizes = {"agents": 3, "in_a_row": 7, "idle": 2, "reporting": 2}
    rounds = {"rounds": 1, "reporting_rounds": 1}
    sections = agent_bench.measure_agents(
        agent_bench.AgentBenchSize(**sizes, **rounds, repeats=1, reporting_repeats=1)
    )
    text = "\n".join(map(join_section_lines, sections))
    for row in ("3 agents of 1 rounds, in memory", "3 agents of 1 rounds, on disk", "one agent of 0 rounds"):
        assert row in text
    assert "3 agents of 1 round, on disk" in text
    for target in ("≤ 60", "≤ 6 ", "≤ 250", "≤ 3 ", "≤ 1.3×", "≤ 90"):
        assert target in text


@pytest.mark.exhaustive
@pytest.mark.spec("WFL-04")
def test_a_workflow_of_1000_agents_costs_little_more_than_a_map_and_stops_at_a_quota_error():
    from bench import agent_bench

    sections = agent_bench.measure_workflow(agent_bench.AgentBenchSize(repeats=3))
    figures = {section.name: section.figures[0] for section in sections}
    assert figures["Agents of a workflow"].ratio <= 1.3
    assert figures["Memory of a workflow"].ours.cpu <= 90
    assert figures["Quota of a workflow"].ours.cpu == 0


@pytest.mark.exhaustive
def test_the_task_board_is_compared_with_plain_files():
    from bench import board_bench

    text = join_section_lines(
        board_bench.measure_board(board_bench.BoardBenchSize(claimants=2, tasks=40, listed=50, repeats=1))
    )
    for row in ("a claim, 2 processes, 40 tasks", "list of 50, cold", "when nothing changed"):
        assert row in text
    assert "≤ 150" in text


@pytest.mark.exhaustive
def test_hooks_are_compared_with_no_hooks_and_the_bare_command():
    from bench import hook_bench

    text = "\n".join(
        map(
            join_section_lines,
            hook_bench.measure_hooks(hook_bench.HookBenchSize(calls=10, repeats=1, rounds=2)),
        )
    )
    for row in ("before and after a call", "one hook, as a whole", "more than the command", "≤ 2", "≤ 5"):
        assert row in text


@pytest.mark.exhaustive
def test_rounds_over_http_are_shown_for_both_protocols_with_one_agent_and_with_many():
    from bench import http_bench

    size = http_bench.HttpBenchSize(rounds=2, repeats=1, agents=3, agents_rounds=1, agents_repeats=1)
    text = join_section_lines(http_bench.measure_http(size))
    for row in ("messages, one agent", "messages, 3 agents", "chat, one agent", "chat, 3 agents"):
        assert row in text


@pytest.mark.exhaustive
def test_start_time_and_memory_of_the_command_are_shown():
    from bench import start_bench

    times, memory = start_bench.measure_start(start_bench.StartBenchSize(repeats=1))
    assert "process start to first request" in join_section_lines(times)
    assert "≤ 350" in join_section_lines(times)
    assert "≤ 55" in join_section_lines(memory)
    peak = memory.figures[0].ours
    assert peak is not None
    assert peak.cpu > 5


@pytest.mark.exhaustive
def test_decisions_about_files_and_commands_are_shown():
    from bench import permission_bench

    text = join_section_lines(
        permission_bench.measure_permissions(permission_bench.PermissionBenchSize(calls=2, repeats=1))
    )
    assert "≤ 5" in text
    assert "≤ 60" in text


@pytest.mark.exhaustive
def test_other_http_clients_are_measured_with_the_same_agents():
    from bench import http_bench, http_client_bench

    size = http_bench.HttpBenchSize(rounds=1, repeats=1, agents=2, agents_rounds=1, agents_repeats=1)
    rounds, _ = http_client_bench.measure_clients(size)
    text = join_section_lines(rounds)
    assert "httpx" in text
    assert "httpcore" in text


@pytest.mark.exhaustive
def test_the_figures_are_available_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from bench import __main__ as program
    from bench import loop_bench

    tiny = loop_bench.LoopBenchSize(short=1, long=2, repeats=1, long_repeats=1)
    monkeypatch.setitem(program.BENCHES, "loop", lambda quick: [loop_bench.measure_loop(tiny)])
    program.main(["--only", "loop", "--json"])
    figures = json.loads(capsys.readouterr().out)["sections"][0]["figures"]
    assert {"name", "ours", "bare", "ratio", "target", "ok"} <= set(figures[0])


def test_a_missed_target_is_reported():
    from bench.figures import Figure, Section, format_section
    from bench.stopwatch import TimeSpent

    slow = Figure(name="slow", ours=TimeSpent(3.0, 3.0), bare=TimeSpent(1.0, 1.0), target=2.0)
    text = "\n".join(format_section(Section(name="A", unit="ms", other="nothing", figures=[slow])))
    assert "3.00×" in text
    assert "NOT MET" in text


@pytest.mark.exhaustive
def test_mail_is_compared_with_plain_files_and_shows_growth_and_wake_times():
    from bench import mail_bench

    size = mail_bench.MailBenchSize(
        posts=40, senders=4, samples=2, histories=(2, 70), plain_samples=1, wakes=3
    )
    costs, wakes = (join_section_lines(section) for section in mail_bench.measure_mail(size))
    for row in (
        "one sender",
        "4 senders",
        "70 consumed before",
        "70 unread before",
        "take + mark 64",
        "growth",
    ):
        assert row in costs
    assert "in another process, p99" in wakes


@pytest.mark.exhaustive
def test_wake_and_spawn_times_of_teams_and_a_large_team_are_shown():
    from bench import team_bench

    size = team_bench.TeamBenchSize(spawns=2, spawn_repeats=1, wakes=2, idle=3, members=3, tasks=9)
    text = "\n".join(map(join_section_lines, team_bench.measure_teams(size)))
    for row in (
        "in-process: mail from outside → request, p50",
        "in-process: 2 spawns → last one's request",
        "process: mail from outside → request, p95",
        "3 members do 9 tasks ",
        "3 members do 9 tasks: peak, MB",
        "an idle member, of 3, KB",
    ):
        assert row in text
    for target in ("≤ 2.5", "≤ 200", "≤ 600", "≤ 60"):
        assert target in text


@pytest.mark.exhaustive
def test_the_delay_of_the_web_view_is_shown():
    from bench import web_bench

    text = "\n".join(
        map(
            join_section_lines,
            web_bench.measure_web(web_bench.WebBenchSize(members=3, each=20, seconds=0.3, runs=2)),
        )
    )
    for row in ("3 members × 20 events/s", "the latest", "≤ 1000", "server's CPU", "out of 2 runs"):
        assert row in text
