"""A mock provider driven by a script file, as a program: `python -m shoal.testing.servers`.

The script format is that of model scripts; a step may also have `faults`, a list of mappings whose `type` is
the fault's tag (`http_error` for `HttpErrorFault`) and whose other fields are the fault's:

    [{"match": "hello", "text": "Hello.", "faults": [{"type": "cut", "after": 3}]},
     {"faults": [{"type": "http_error", "status": 429, "retry_after": 0.1}]}]

The first line on standard output is the server's URL. It ends on TERM, INT, or the end of standard input
with `--with-parent`, and then prints one line of JSON: requests, answered, reported, unsettled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import SettingsError
from shoal.testing.chat_form import ChatForm
from shoal.testing.messages_form import MessagesForm
from shoal.testing.outgoing import Form
from shoal.testing.replies import Answer, AnyFault, Body, Delay, Sayable
from shoal.testing.responses_form import ResponsesForm
from shoal.testing.servers import MockServer
from shoal.wire.script import Asked, Step, Steps, read_script

_FORMS: dict[str, Callable[[], Form]] = {
    "messages": MessagesForm,
    "chat": ChatForm,
    "responses": ResponsesForm,
}


class ServerStep(Step, frozen=True):
    faults: tuple[AnyFault, ...] = ()


def mind_of(steps: Sequence[ServerStep]) -> Callable[[Body], Sayable]:
    """Return the responder that plays these steps."""
    remaining = Steps(steps)

    def think(body: Body) -> Sayable:
        step = remaining.take(_asked(body))
        if step is None:
            raise LookupError(f"no step of the script is left for: {_last(body)[:200]!r}")
        pause = (Delay(seconds=step.delay),) if step.delay else ()
        return Answer(
            content=step.content,
            usage=step.usage,
            stop_reason=step.stop_reason,
            faults=pause + step.faults,
        )

    return think


def _asked(body: Body) -> Asked:
    return Asked(
        last=lambda: _last(body),
        system=lambda: _system(body),
        answers=lambda: _answers(body),
    )


def _answers(body: Body) -> int:
    """Count the model's answers: items of one answer are consecutive."""
    theirs = [_is_models(message) for message in _messages(body)]
    return sum(is_its and not before for is_its, before in zip(theirs, [False, *theirs], strict=False))


def _is_models(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("type") in ("reasoning", "function_call")


def _messages(body: Body) -> Sequence[Mapping[str, Any]]:
    given = body.get("messages") or body.get("input") or ()
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _last(body: Body) -> str:
    """Return the text after the model's last answer, in any provider's format."""
    texts: list[str] = []
    for message in reversed(_messages(body)):
        if _is_models(message) or message.get("role") == "system":
            break
        texts.append(_text(message.get("content") or message.get("output")))
    return "\n".join(reversed(texts))


def _system(body: Body) -> str:
    if "instructions" in body:
        return _text(body["instructions"])
    if "system" in body:
        return _text(body["system"])
    systems = (m for m in _messages(body) if m.get("role") in ("system", "developer"))
    return "\n".join(_text(message.get("content")) for message in systems)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(part["text"] if "text" in part else _text(part.get("content")) for part in parts)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m shoal.testing.servers", description="A mock model provider on loopback."
    )
    parser.add_argument("--api", choices=tuple(_FORMS), default="messages")
    parser.add_argument("--script", type=Path, required=True, metavar="FILE")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", action="append", dest="models", metavar="NAME", help="a name it offers")
    parser.add_argument("--lenient", action="store_true", help="answer also what a provider would refuse")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input, a pipe, ends")
    options = parser.parse_args(argv)
    try:
        steps = read_script(options.script, ServerStep)
    except SettingsError as error:
        parser.error(str(error))
    server = MockServer(
        _FORMS[options.api](),
        mind_of(steps),
        models=options.models or ["mock"],
        strict=not options.lenient,
        keep_requests=False,
    )
    asyncio.run(_run(server, port=options.port, with_parent=options.with_parent))


async def _run(server: MockServer, *, port: int, with_parent: bool) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), end.set)
    await server.start(port=port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await end.wait()
    await server.stop()
    for error in server.mind_errors:
        sys.stderr.write(f"{error}\n")
    told = {
        "requests": server.count,
        "answered": server.answered,
        "reported": server.reported,
        "unsettled": server.unsettled,
    }
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
