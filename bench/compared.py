"""Compares Shoal with a bare loop and with its peers: asks everyone every question and builds the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from bench import board, mail, teams
from bench.figures import Figure, Section
from bench.peers.asking import (
    BARE,
    KEEPING,
    SHOAL,
    Answers,
    Failed,
    Subject,
    answer,
    imported,
    in_turn,
    script_that_starts,
    surroundings,
)
from bench.provider import provider
from bench.standings import FLOOR, OURS, Group, Row
from bench.start import started
from shoal.testing.servers import chat_server


class Size(Struct, frozen=True, kw_only=True):
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
    mail: mail.Size = mail.Size(samples=100, histories=(10, 10_000), plain_samples=3)
    board: board.Size = board.Size()
    teams: teams.Size = teams.Size(spawn_repeats=3)


ONCE = Size(
    times=1,
    times_loop=1,
    long=200,
    waiting=300,
    http_repeats=2,
    starts=1,
    mail=mail.Size(posts=1_000, samples=50, histories=(10, 10_000), plain_samples=2, wakes=100),
    board=board.Size(repeats=1),
    teams=teams.Size(spawn_repeats=1, wakes=60),
)
QUICK = Size(
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
    mail=mail.Size(posts=40, senders=4, samples=2, histories=(2, 70), plain_samples=1, wakes=3),
    board=board.Size(claimants=2, tasks=40, listed=50, repeats=1),
    teams=teams.Size(spawns=2, spawn_repeats=1, wakes=2, idle=3, members=3, tasks=9),
)


class Comparison(Struct, kw_only=True):
    """The rows, and the reasons why somebody is missing."""

    groups: list[Group] = []
    missing: dict[str, str] = {}


Say = Callable[[str], None]
Pick = Callable[[Sequence[dict[str, Any]]], float]
"""Computes one number from all answers of one library."""


def compare(size: Size, peers: Sequence[Subject], say: Say = lambda _: None) -> Comparison:
    comparison = asked(size, peers, say)
    say("mail, board and teams")
    comparison.groups.append(Group(name="Shoal's own", rows=_own(size)))
    return comparison


def asked(size: Size, peers: Sequence[Subject], say: Say = lambda _: None) -> Comparison:
    """Ask everyone everything except the questions about Shoal alone."""
    everyone = [SHOAL, BARE, *peers]
    comparison = Comparison(missing={peer.name: peer.missing for peer in peers if peer.missing})
    for what, ask in (
        ("the loop", _loop),
        ("agents at once", _crowd),
        ("memory", _memory),
        ("HTTP", _http),
        ("import and start", _start),
    ):
        say(what)
        name, rows, failed = ask(size, everyone)
        comparison.groups.append(Group(name=name, rows=rows))
        for who, reason in failed.items():
            comparison.missing[f"{who}, {what}"] = reason
    return comparison


Asked = tuple[str, list[Row], dict[str, str]]
_ABOUT = {
    "Mail on files": "mail: ",
    "Waking who waits for mail": "mail wakes ",
    "The task board": "board: ",
    "Teammates over HTTP": "teammates ",
    "A teammate's process after a turn": "a teammate's process, ",
}
"""Prefix of a row about Shoal alone, by its section."""


def _loop(size: Size, everyone: Sequence[Subject]) -> Asked:
    given = {"rounds": size.rounds, "long": size.long, "repeats": size.repeats}
    answers = in_turn([*everyone, KEEPING], size.times_loop, lambda who: answer(who, "loop", **given))
    rows = [
        _row(f"a tool round, of {size.rounds}", "µs CPU", answers, _spent("short", 0, 1e6), target=0.3),
        _row("  wall", "µs", answers, _spent("short", 1, 1e6), target=0.3),
        _row(f"a tool round, after {size.long - 50} others", "µs CPU", answers, _one("late", 0, 1e6)),
        _row("  growth, to the first ones", "times", answers, _growth),
        _row("a tool round, Shoal's on disk", "µs CPU", answers, _spent("short", 0, 1e6), ours=KEEPING),
    ]
    return "One agent, a model that answers at once", rows, answers.failed


def _crowd(size: Size, everyone: Sequence[Subject]) -> Asked:
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for agents, repeats, unit, factor in ((size.few, 2, "ms", 1e3), (size.many, 1, "s", 1.0)):
        given = {"agents": agents, "rounds": size.agent_rounds, "repeats": repeats}
        asked = [*everyone, KEEPING] if agents == size.many else everyone
        answers = in_turn(asked, size.times, lambda who, given=given: answer(who, "crowd", **given))
        name = f"{agents:,} agents of {size.agent_rounds} rounds"
        rows.append(_row(name, f"{unit} CPU", answers, _spent("spent", 0, factor), target=0.5))
        rows.append(_row("  wall", unit, answers, _spent("spent", 1, factor), target=0.5))
        failed |= answers.failed
    rows.append(_row("  peak", "MB", answers, lambda said: median(each["peak"] for each in said)))
    rows.append(_row(f"{name}, Shoal's on disk", "s CPU", answers, _spent("spent", 0, 1.0), ours=KEEPING))
    return "One agent starts many at once, a model that answers at once", rows, failed


def _memory(size: Size, everyone: Sequence[Subject]) -> Asked:
    def ask(who: Subject) -> dict[str, Any]:
        return answer(who, "waiting", agents=size.waiting)

    answers = in_turn([*everyone, KEEPING], size.times, ask)
    rows = [
        _row("an agent that waits, as by default", "KB", answers, _held, ours=KEEPING),
        _row("an agent that waits, Shoal's in memory too", "KB", answers, _held),
    ]
    return "Memory, a history of ten messages", rows, answers.failed


def _http(size: Size, everyone: Sequence[Subject]) -> Asked:
    with provider("chat") as url:
        given = {"url": url, "rounds": size.http_rounds, "repeats": size.http_repeats}
        answers = in_turn(everyone, size.times, lambda who: answer(who, "http", **given))
    rows = [
        _row("a tool round, streamed", "ms CPU", answers, _spent("stream", 0, 1e3), target=0.5),
        _row("  wall", "ms", answers, _spent("stream", 1, 1e3), target=0.5),
        _row("a tool round, Shoal's alone streamed", "ms CPU", answers, _spent("plain", 0, 1e3), target=0.5),
    ]
    return f"One agent over HTTP on loopback, {size.http_rounds} rounds", rows, answers.failed


def _start(size: Size, everyone: Sequence[Subject]) -> Asked:
    # The first one writes the byte code.
    imports = in_turn(everyone, size.starts + 1, imported)
    starts = in_turn(everyone, size.starts + 1, _asks_once)
    for answers in (imports, starts):
        for said in answers.said.values():
            del said[: len(said) > 1]
    rows = [
        _row("import", "ms CPU", imports, _spent("spent", 0, 1e3)),
        _row("a process that asks once: to its request", "ms", starts, _spent("request", 1, 1e3)),
        _row("  to its end", "ms CPU", starts, _spent("whole", 0, 1e3)),
        _row("  peak", "MB", starts, lambda said: median(each["peak"] for each in said)),
    ]
    return "Import and start", rows, starts.failed | imports.failed


def _asks_once(who: Subject) -> dict[str, Any]:
    def environment(home: str, url: str) -> dict[str, str]:
        keys = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "bench"}
        return surroundings(who, home, BENCH_URL=url, SHOAL_HOME=f"{home}/shoal", **keys)

    try:
        start = started(script_that_starts(who), chat_server, environment)
    except RuntimeError as error:
        raise Failed(str(error).splitlines()[-1]) from None
    return {
        "request": [(start.to_request.cpu, start.to_request.wall)],
        "whole": [(start.whole.cpu, start.whole.wall)],
        "peak": start.megabytes,
    }


def _row(
    name: str,
    unit: str,
    answers: Answers,
    pick: Pick,
    *,
    target: float | None = None,
    ours: Subject = SHOAL,
) -> Row:
    """Make a row; `ours` replaces the Shoal column by another variant of Shoal."""
    said = {who: each for who, each in answers.said.items() if who not in (SHOAL.name, KEEPING.name)}
    if ours.name in answers.said:
        said = {OURS: answers.said[ours.name], **said}
    cells = {who: pick(each) for who, each in said.items()}
    return Row(name=name, unit=unit, cells=cells, target=target)


def _spent(key: str, which: int, factor: float) -> Pick:
    """Pick the median of all repeats of all times; `which` selects CPU or wall."""
    return lambda said: factor * median(pair[which] for each in said for pair in each[key])


def _one(key: str, which: int, factor: float) -> Pick:
    return lambda said: factor * median(each[key][which] for each in said)


def _growth(said: Sequence[Mapping[str, Any]]) -> float:
    return median(each["late"][0] / each["early"][0] for each in said)


def _held(said: Sequence[Mapping[str, Any]]) -> float:
    return max(0.0, median(each["held"] for each in said))


def _own(size: Size) -> list[Row]:
    sections = [*mail.measure(size.mail), board.measure(size.board), *teams.measure(size.teams)]
    return [
        _own_row(section, figure)
        for section in sections
        for figure in section.figures
        if figure.ours is not None and figure.target is not None
    ]


def _own_row(section: Section, figure: Figure) -> Row:
    cells = {}
    for column, spent in ((OURS, figure.ours), (FLOOR, figure.bare)):
        if spent is not None:
            cells[column] = spent.wall if figure.judged == "wall" else spent.cpu
    unit = section.unit.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    timed = f"{unit} {'wall' if figure.judged == 'wall' else 'CPU'}" if section.timed else unit
    name, held = figure.name, unit
    if section.unit.startswith("MB and"):
        name, held = figure.name.rsplit(", ", maxsplit=1)
        timed = held
    if name.lstrip().startswith("growth"):
        name, timed = "  growth, to an inbox of few", "times"
    elif not name.startswith(" "):
        name = _ABOUT.get(section.name, "") + name
    return Row(name=name, unit=timed, cells=cells, promise=figure.target)
