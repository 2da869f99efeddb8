"""Compares Shoal with a bare loop and with its peers: asks everyone every question and builds the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from bench import agent_bench, board_bench, mail_bench, team_bench
from bench.comparison_table import FLOOR, OURS, ComparisonRow, RowGroup
from bench.figures import Figure, Section
from bench.mock_provider import run_mock_provider
from bench.peers.peer_runner import (
    BARE,
    SHOAL,
    SHOAL_ON_DISK,
    BenchSubject,
    CollectedAnswers,
    PeerFailed,
    ask_in_turn,
    ask_subject,
    build_environment,
    get_start_script,
    time_import,
)
from bench.start_bench import time_start
from shoal.testing.servers import chat_server


class ComparisonSize(Struct, frozen=True, kw_only=True):
    times: int = 2
    """Number of times everyone is asked, in turn."""
    times_loop: int = 3
    """Number of times everyone is asked about the loop, the cheapest question."""
    rounds: int = 50
    long: int = 300
    repeats: int = 5
    """Repeats in one process, after a first one that does not count."""
    few: int = 100
    many: int = 1_000
    agent_rounds: int = 5
    waiting: int = 600
    http_rounds: int = 20
    http_repeats: int = 3
    starts: int = 4
    mail: mail_bench.MailBenchSize = mail_bench.MailBenchSize(
        samples=100, histories=(10, 10_000), plain_samples=3
    )
    board: board_bench.BoardBenchSize = board_bench.BoardBenchSize()
    teams: team_bench.TeamBenchSize = team_bench.TeamBenchSize(spawn_repeats=3)
    workflow: agent_bench.AgentBenchSize = agent_bench.AgentBenchSize(repeats=3)


ONCE_SIZE = ComparisonSize(
    times=1,
    times_loop=1,
    long=200,
    waiting=300,
    http_repeats=2,
    starts=1,
    mail=mail_bench.MailBenchSize(
        posts=1_000, samples=50, histories=(10, 10_000), plain_samples=2, wakes=100
    ),
    board=board_bench.BoardBenchSize(repeats=1),
    teams=team_bench.TeamBenchSize(spawn_repeats=1, wakes=60),
    workflow=agent_bench.AgentBenchSize(repeats=1),
)
QUICK_SIZE = ComparisonSize(
    times=1,
    times_loop=1,
    rounds=5,
    long=10,
    repeats=1,
    few=3,
    many=10,
    agent_rounds=1,
    waiting=20,
    http_rounds=2,
    http_repeats=1,
    starts=0,
    mail=mail_bench.MailBenchSize(
        posts=40, senders=4, samples=2, histories=(2, 70), plain_samples=1, wakes=3
    ),
    board=board_bench.BoardBenchSize(claimants=2, tasks=40, listed=50, repeats=1),
    teams=team_bench.TeamBenchSize(spawns=2, spawn_repeats=1, wakes=2, idle=3, members=3, tasks=9),
    workflow=agent_bench.AgentBenchSize(agents=5, repeats=1),
)


class Comparison(Struct, kw_only=True):
    """The rows, and the reasons why somebody is missing."""

    groups: list[RowGroup] = []
    missing: dict[str, str] = {}


PrintProgress = Callable[[str], None]
PickNumber = Callable[[Sequence[dict[str, Any]]], float]
"""Computes one number from all answers of one library."""


def compare_libraries(
    size: ComparisonSize, peers: Sequence[BenchSubject], print_progress: PrintProgress = lambda _: None
) -> Comparison:
    comparison = ask_libraries(size, peers, print_progress)
    print_progress("mail, board and teams")
    comparison.groups.append(RowGroup(name="Shoal's own", rows=measure_own_rows(size, OWN_TOPICS)))
    return comparison


def ask_libraries(
    size: ComparisonSize, peers: Sequence[BenchSubject], print_progress: PrintProgress = lambda _: None
) -> Comparison:
    """Ask everyone everything except the questions about Shoal alone."""
    subjects = [SHOAL, BARE, *peers]
    comparison = Comparison(missing={peer.name: peer.missing for peer in peers if peer.missing})
    for topic, ask in (
        ("the loop", _compare_loop),
        ("agents at once", _compare_crowd),
        ("memory", _compare_memory),
        ("HTTP", _compare_http),
        ("import and start", _compare_start),
    ):
        print_progress(topic)
        name, rows, failed = ask(size, subjects)
        comparison.groups.append(RowGroup(name=name, rows=rows))
        for subject_name, reason in failed.items():
            comparison.missing[f"{subject_name}, {topic}"] = reason
    return comparison


AnsweredRows = tuple[str, list[ComparisonRow], dict[str, str]]
_ROW_PREFIXES = {
    "Mail on files": "mail: ",
    "Waking who waits for mail": "mail wakes ",
    "The task board": "board: ",
    "Teammates over HTTP": "teammates ",
    "A teammate's process after a turn": "a teammate's process, ",
    "Time of a workflow": "workflow: ",
    "Memory of a workflow": "workflow: ",
    "Quota of a workflow": "workflow: ",
}
"""Prefix of a row about Shoal alone, by its section."""


def _compare_loop(size: ComparisonSize, subjects: Sequence[BenchSubject]) -> AnsweredRows:
    parameters = {"rounds": size.rounds, "long": size.long, "repeats": size.repeats}
    answers = ask_in_turn(
        [*subjects, SHOAL_ON_DISK], size.times_loop, lambda who: ask_subject(who, "loop", **parameters)
    )
    rows = [
        _make_row(
            f"a tool round, of {size.rounds}", "µs CPU", answers, _pick_median("short", 0, 1e6), target=0.3
        ),
        _make_row("  wall", "µs", answers, _pick_median("short", 1, 1e6), target=0.3),
        _make_row(
            f"a tool round, after {size.long - 50} others", "µs CPU", answers, _pick_single("late", 0, 1e6)
        ),
        _make_row("  growth, relative to the first rounds", "times", answers, _pick_growth),
        _make_row(
            "a tool round, Shoal on disk",
            "µs CPU",
            answers,
            _pick_median("short", 0, 1e6),
            ours=SHOAL_ON_DISK,
        ),
    ]
    return "One agent, a model that answers at once", rows, answers.failures


def _compare_crowd(size: ComparisonSize, subjects: Sequence[BenchSubject]) -> AnsweredRows:
    rows: list[ComparisonRow] = []
    failed: dict[str, str] = {}
    for agents, repeats, unit, factor in ((size.few, 2, "ms", 1e3), (size.many, 1, "s", 1.0)):
        given = {"agents": agents, "rounds": size.agent_rounds, "repeats": repeats}
        asked_subjects = [*subjects, SHOAL_ON_DISK] if agents == size.many else subjects
        answers = ask_in_turn(
            asked_subjects, size.times, lambda who, given=given: ask_subject(who, "crowd", **given)
        )
        name = f"{agents:,} agents of {size.agent_rounds} rounds"
        rows.append(_make_row(name, f"{unit} CPU", answers, _pick_median("spent", 0, factor), target=0.5))
        rows.append(_make_row("  wall", unit, answers, _pick_median("spent", 1, factor), target=0.5))
        failed |= answers.failures
    rows.append(_make_row("  peak", "MB", answers, lambda said: median(each["peak"] for each in said)))
    rows.append(
        _make_row(
            f"{name}, Shoal on disk", "s CPU", answers, _pick_median("spent", 0, 1.0), ours=SHOAL_ON_DISK
        )
    )
    return "One agent starts many at once, a model that answers at once", rows, failed


def _compare_memory(size: ComparisonSize, subjects: Sequence[BenchSubject]) -> AnsweredRows:
    def ask_waiting(who: BenchSubject) -> dict[str, Any]:
        return ask_subject(who, "waiting", agents=size.waiting)

    answers = ask_in_turn([*subjects, SHOAL_ON_DISK], size.times, ask_waiting)
    rows = [
        _make_row("a waiting agent, default settings", "KB", answers, _pick_memory, ours=SHOAL_ON_DISK),
        _make_row("a waiting agent, Shoal in memory too", "KB", answers, _pick_memory),
    ]
    return "Memory, a history of ten messages", rows, answers.failures


def _compare_http(size: ComparisonSize, subjects: Sequence[BenchSubject]) -> AnsweredRows:
    with run_mock_provider("chat") as url:
        parameters = {"url": url, "rounds": size.http_rounds, "repeats": size.http_repeats}
        answers = ask_in_turn(subjects, size.times, lambda who: ask_subject(who, "http", **parameters))
    rows = [
        _make_row("a tool round, streamed", "ms CPU", answers, _pick_median("stream", 0, 1e3), target=0.5),
        _make_row("  wall", "ms", answers, _pick_median("stream", 1, 1e3), target=0.5),
        _make_row(
            "a tool round, only Shoal streamed",
            "ms CPU",
            answers,
            _pick_median("plain", 0, 1e3),
            target=0.5,
        ),
    ]
    return f"One agent over HTTP on loopback, {size.http_rounds} rounds", rows, answers.failures


def _compare_start(size: ComparisonSize, subjects: Sequence[BenchSubject]) -> AnsweredRows:
    # The first one writes the byte code.
    imports = ask_in_turn(subjects, size.starts + 1, time_import)
    starts = ask_in_turn(subjects, size.starts + 1, _time_one_request)
    for answers in (imports, starts):
        for subject_answers in answers.answers.values():
            del subject_answers[: len(subject_answers) > 1]
    rows = [
        _make_row("import", "ms CPU", imports, _pick_median("spent", 0, 1e3)),
        _make_row(
            "a process with one request: to the request", "ms", starts, _pick_median("request", 1, 1e3)
        ),
        _make_row("  to the end", "ms CPU", starts, _pick_median("whole", 0, 1e3)),
        _make_row("  peak", "MB", starts, lambda said: median(each["peak"] for each in said)),
    ]
    return "Import and start", rows, starts.failures | imports.failures


def _time_one_request(subject: BenchSubject) -> dict[str, Any]:
    def make_environment(home: str, url: str) -> dict[str, str]:
        keys = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "bench"}
        return build_environment(subject, home, BENCH_URL=url, SHOAL_HOME=f"{home}/shoal", **keys)

    try:
        start = time_start(get_start_script(subject), chat_server, make_environment)
    except RuntimeError as error:
        raise PeerFailed(str(error).splitlines()[-1]) from None
    return {
        "request": [(start.to_request.cpu, start.to_request.wall)],
        "whole": [(start.whole.cpu, start.whole.wall)],
        "peak": start.megabytes,
    }


def _make_row(
    name: str,
    unit: str,
    answers: CollectedAnswers,
    pick: PickNumber,
    *,
    target: float | None = None,
    ours: BenchSubject = SHOAL,
) -> ComparisonRow:
    """Make a row; `ours` replaces the Shoal column by another variant of Shoal."""
    other_answers = {
        who: each for who, each in answers.answers.items() if who not in (SHOAL.name, SHOAL_ON_DISK.name)
    }
    if ours.name in answers.answers:
        other_answers = {OURS: answers.answers[ours.name], **other_answers}
    cells = {who: pick(each) for who, each in other_answers.items()}
    return ComparisonRow(name=name, unit=unit, cells=cells, target=target)


def _pick_median(key: str, which: int, factor: float) -> PickNumber:
    """Pick the median of all repeats of all times; `which` selects CPU or wall."""
    return lambda said: factor * median(pair[which] for each in said for pair in each[key])


def _pick_single(key: str, which: int, factor: float) -> PickNumber:
    return lambda said: factor * median(each[key][which] for each in said)


def _pick_growth(answers: Sequence[Mapping[str, Any]]) -> float:
    return median(each["late"][0] / each["early"][0] for each in answers)


def _pick_memory(answers: Sequence[Mapping[str, Any]]) -> float:
    return max(0.0, median(each["held"] for each in answers))


OWN_TOPICS: Mapping[str, Callable[[ComparisonSize], list[Section]]] = {
    "mail": lambda size: mail_bench.measure_mail(size.mail),
    "board": lambda size: [board_bench.measure_board(size.board)],
    "teams": lambda size: team_bench.measure_teams(size.teams),
    "workflow": lambda size: agent_bench.measure_workflow(size.workflow),
}
"""Topics that no other library is asked about."""


def measure_own_rows(size: ComparisonSize, topics: Iterable[str]) -> list[ComparisonRow]:
    return [
        _make_own_row(section, figure)
        for topic in topics
        for section in OWN_TOPICS[topic](size)
        for figure in section.figures
        if figure.ours is not None and figure.target is not None
    ]


def _make_own_row(section: Section, figure: Figure) -> ComparisonRow:
    cells = {}
    for column, spent in ((OURS, figure.ours), (FLOOR, figure.bare)):
        if spent is not None:
            cells[column] = spent.wall if figure.judged == "wall" else spent.cpu
    unit = section.unit.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    timed = f"{unit} {'wall' if figure.judged == 'wall' else 'CPU'}" if section.timed else unit
    name, row_unit = figure.name, unit
    if section.unit.startswith("MB and"):
        name, row_unit = figure.name.rsplit(", ", maxsplit=1)
        timed = row_unit
    if name.lstrip().startswith("growth"):
        name, timed = "  growth, relative to a small inbox", "times"
    elif not name.startswith(" "):
        name = _ROW_PREFIXES.get(section.name, "") + name
    return ComparisonRow(name=name, unit=timed, cells=cells, limit=figure.target)
