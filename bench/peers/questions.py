"""Questions for each library, asked inside its own environment; the answer is one line of JSON.

`python with_NAME.py loop --rounds 50 --long 300 --repeats 5`. Standard library only. A script has

- `PACKAGES`: the distributions whose versions are reported
- `run(rounds)`: returns a call that runs one new agent, whose model calls `add` in each of so many rounds
- `crowd(agents, rounds)`: returns a call in which one agent starts so many others at once, by the library's
  own way to delegate, and that returns how many of their answers it saw
- `waiting(number)`: an agent with its own history
- `over_http(base, rounds, stream)`: like `run`, with the library's client for Chat Completions

They may return a plain value, an awaitable or an asynchronous context manager; creating it is not timed.
"""

import argparse
import asyncio
import contextlib
import gc
import inspect
import json
import logging
import os
import sys
import time
import traceback
import warnings

FINAL = "all done"
CHILD = "Add one, as often as you were told."
WINDOW = 50
"""Number of rounds at the beginning and at the end of a long run that are compared."""


class CountingAdder:
    """The tool that every agent has: it counts its calls, so that nobody can skip the work."""

    def __init__(self) -> None:
        self.count = 0
        self.stamps: list[tuple[float, float]] | None = None

    def add(self, a: int, b: int) -> str:
        self.count += 1
        if self.stamps is not None:
            self.stamps.append((time.process_time(), time.perf_counter()))
        return str(a + b)


SUMS = CountingAdder()
add_up = SUMS.add


def arguments(done: int) -> str:
    return f'{{"a": {done}, "b": 1}}'


def history(number: int) -> list[tuple[str, str]]:
    """Return ten messages of some 200 characters that no other agent has."""
    filler = "lorem ipsum dolor sit amet "
    return [
        ("user" if k % 2 == 0 else "assistant", f"agent {number}, message {k}: {filler * 7}{number * 10 + k}")
        for k in range(10)
    ]


class CpuTimer:
    """Measures seconds of CPU (all threads of this process) and wall time."""

    def __enter__(self) -> "CpuTimer":
        gc.collect()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.spent = (time.process_time() - self._cpu, time.perf_counter() - self._wall)

    def divide_by(self, count: int) -> tuple[float, float]:
        return self.spent[0] / count, self.spent[1] / count


async def _await_value(value):
    return await value if inspect.isawaitable(value) else value


@contextlib.asynccontextmanager
async def _enter_context(value):
    if hasattr(value, "__aenter__"):
        async with value as inner:
            yield inner
    else:
        yield await _await_value(value)


class LibraryQuestions:
    """Asks one library one question; each method returns a JSON object."""

    def __init__(self, library, arguments: argparse.Namespace) -> None:
        self._library = library
        self._given = arguments

    async def _time_run(self, made, rounds: int) -> tuple[float, float]:
        async with _enter_context(made) as call:
            old_count = SUMS.count
            with CpuTimer() as clock:
                text = await _await_value(call())
        assert SUMS.count - old_count == rounds, (
            f"the tool was called {SUMS.count - old_count} times, not {rounds}"
        )
        assert FINAL in str(text), f"the last word was {text!r}"
        return clock.divide_by(rounds)

    async def loop(self) -> dict:
        given = self._given
        await self._time_run(self._library.run(given.rounds), given.rounds)
        short = [
            await self._time_run(self._library.run(given.rounds), given.rounds) for _ in range(given.repeats)
        ]
        SUMS.stamps = stamps = []
        await self._time_run(self._library.run(given.long), given.long)
        SUMS.stamps = None
        window = min(WINDOW, given.long - 1)
        return {
            "short": short,
            "early": _compute_round_time(stamps, 0, window),
            "late": _compute_round_time(stamps, -1 - window, -1),
        }

    async def crowd(self) -> dict:
        given = self._given
        await self._time_crowd(2, 1)
        spent = [await self._time_crowd(given.agents, given.rounds) for _ in range(given.repeats)]
        return {"spent": spent, "peak": _memory("VmHWM") / 1024}

    async def _time_crowd(self, agents: int, rounds: int) -> tuple[float, float]:
        old_count = SUMS.count
        async with _enter_context(self._library.crowd(agents, rounds)) as call:
            with CpuTimer() as clock:
                answer_count = await _await_value(call())
        assert answer_count == agents, f"{answer_count} answers of {agents} were seen"
        assert SUMS.count - old_count == agents * rounds, (
            f"{SUMS.count - old_count} calls of {agents * rounds}"
        )
        return clock.spent

    async def waiting(self) -> dict:
        """Return the KB of memory per agent."""
        agents = self._given.agents
        if hasattr(self._library, "all_waiting"):
            return {"held": await self._library.all_waiting(agents)}
        first = [await _await_value(self._library.waiting(1_000_000 + number)) for number in range(20)]
        gc.collect()
        memory_before = _memory("VmRSS")
        waiting_agents = [await _await_value(self._library.waiting(number)) for number in range(agents)]
        gc.collect()
        kilobytes = (_memory("VmRSS") - memory_before) / agents
        assert len(first) + len(waiting_agents) == agents + 20
        return {"held": kilobytes}

    async def http(self) -> dict:
        given = self._given
        answer = {}
        for kind, stream in (("stream", True), ("plain", False)):
            await self._time_run(self._library.over_http(given.url, given.rounds, stream), given.rounds)
            answer[kind] = [
                await self._time_run(self._library.over_http(given.url, given.rounds, stream), given.rounds)
                for _ in range(given.repeats)
            ]
        return answer

    async def versions(self) -> dict:
        from importlib.metadata import version

        return {name: version(name) for name in self._library.PACKAGES}


def _compute_round_time(stamps: list[tuple[float, float]], first: int, last: int) -> tuple[float, float]:
    """Return the seconds per round between two calls of the tool."""
    count = last - first
    (cpu, wall), (later_cpu, later_wall) = stamps[first], stamps[last]
    return (later_cpu - cpu) / count, (later_wall - wall) / count


def memory(field: str = "VmRSS") -> int:
    """Return the KB that this process holds, or (VmHWM) held at most."""
    with open("/proc/self/status") as file:  # noqa: PTH123 - what is imported here counts for everyone
        return next(int(line.split()[1]) for line in file if line.startswith(field))


_memory = memory


def answer(library) -> None:
    parser = argparse.ArgumentParser(description="Ask one library one question.")
    parser.add_argument("question", choices=("loop", "crowd", "waiting", "http", "versions"))
    parser.add_argument("--url", default="")
    for number in ("--rounds", "--long", "--repeats", "--agents"):
        parser.add_argument(number, type=int, default=1)
    arguments = parser.parse_args()
    # What a library prints goes to stderr: stdout is for the answer.
    out = os.dup(1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    try:
        result = asyncio.run(getattr(LibraryQuestions(library, arguments), arguments.question)())
        status = 0
    except BaseException:  # noqa: BLE001 - whatever a library raises is told, and ends its process
        traceback.print_exc()
        result, status = {}, 1
    os.write(out, json.dumps(result).encode() + b"\n")
    sys.stderr.flush()
    # At once: what a library does when its process ends was not asked.
    os._exit(status)
