"""No library: a loop over dicts, `asyncio.gather` for a crowd, httpx to ask. The floor, not a contestant."""

import asyncio
import sys
from contextlib import asynccontextmanager

from questions import CHILD, FINAL, add_up, answer, history

from bench import bare, bare_http

PACKAGES = ()


async def _add(a: int, b: int) -> str:
    return add_up(a, b)


_TOOLS = {"add": _add}


def run(rounds: int):
    return lambda: bare.loop("go", bare.instant(rounds, saying=""), _TOOLS)


def crowd(agents: int, rounds: int):
    async def call():
        loops = (bare.loop(CHILD, bare.instant(rounds, saying=""), _TOOLS) for _ in range(agents))
        return sum(text == FINAL for text in await asyncio.gather(*loops))

    return call


def waiting(number: int):
    return [{"role": role, "content": text} for role, text in history(number)]


@asynccontextmanager
async def over_http(base: str, rounds: int, stream: bool):
    import httpx

    ask = bare_http.chat if stream else bare_http.chat_whole
    async with httpx.AsyncClient(verify=False, timeout=120) as client:
        yield lambda: bare.loop(f"ROUNDS={rounds}", ask(client, base), _TOOLS)


if __name__ == "__main__":
    answer(sys.modules[__name__])
