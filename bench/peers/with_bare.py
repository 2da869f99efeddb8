"""No library: a loop over dicts, `asyncio.gather` for a crowd, httpx to ask. The floor, not a contestant."""

import asyncio
import sys
from contextlib import asynccontextmanager

from questions import CHILD, FINAL, add_up, answer, history

from bench import bare_http, bare_loop

PACKAGES = ()


async def _add_numbers(a: int, b: int) -> str:
    return add_up(a, b)


_TOOLS = {"add": _add_numbers}


def run(rounds: int):
    return lambda: bare_loop.run_bare_loop("go", bare_loop.create_instant_model(rounds, saying=""), _TOOLS)


def crowd(agents: int, rounds: int):
    async def run_loops():
        loops = (
            bare_loop.run_bare_loop(CHILD, bare_loop.create_instant_model(rounds, saying=""), _TOOLS)
            for _ in range(agents)
        )
        return sum(text == FINAL for text in await asyncio.gather(*loops))

    return run_loops


def waiting(number: int):
    return [{"role": role, "content": text} for role, text in history(number)]


@asynccontextmanager
async def over_http(base: str, rounds: int, stream: bool):
    import httpx

    ask = bare_http.create_chat_model if stream else bare_http.create_chat_model_without_stream
    async with httpx.AsyncClient(verify=False, timeout=120) as client:
        yield lambda: bare_loop.run_bare_loop(f"ROUNDS={rounds}", ask(client, base), _TOOLS)


if __name__ == "__main__":
    answer(sys.modules[__name__])
