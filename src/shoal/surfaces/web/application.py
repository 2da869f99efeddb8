"""Routes of the web view."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from shoal.core.errors import ShoalError
from shoal.surfaces.web.board import BoardDoor
from shoal.surfaces.web.guard import Gate, Guard
from shoal.surfaces.web.looking import Looking
from shoal.surfaces.web.replies import Refused, fault, refusal
from shoal.surfaces.web.showing import Showing
from shoal.surfaces.web.steering import Steering


def static_directory() -> Path:
    """Return the directory of the built front end, which is part of the package."""
    return Path(str(files("shoal.surfaces.web"))) / "static"


def application(showing: Showing, gate: Gate) -> Guard:
    handlers = {Refused: refusal, ShoalError: refusal, HTTPException: refusal, Exception: fault}
    routes = [Mount("/api", routes=_api(showing)), *_pages()]
    # Outermost, so that error replies are guarded too.
    return Guard(Starlette(routes=routes, exception_handlers=handlers), gate)


def _api(showing: Showing) -> list[Route]:
    looking, steering, board = Looking(showing), Steering(showing), BoardDoor(showing)
    run = "/runs/{session}"
    agent = run + "/agents/{agent}"
    task = run + "/tasks/{board}/{task}"
    return [
        Route("/runs", looking.runs),
        Route(run + "/frames", looking.frames),
        Route(run + "/replay", looking.replay),
        Route(run + "/letters/{team}/{to}/{letter}", looking.letter),
        Route(agent + "/transcript", looking.transcript),
        Route(agent + "/transcript/{n:int}", looking.entry),
        Route(agent + "/live", looking.live),
        Route("/questions", looking.questions),
        Route("/questions/stream", looking.question_stream),
        Route(run + "/questions/{question}", steering.answer, methods=["POST"]),
        Route(run + "/send", steering.send, methods=["POST"]),
        Route(run + "/interrupt", steering.interrupt, methods=["POST"]),
        Route(run + "/stop", steering.stop, methods=["POST"]),
        Route(run + "/kill", steering.kill, methods=["POST"]),
        Route(run + "/background", steering.background, methods=["POST"]),
        Route(run + "/mode", steering.mode, methods=["POST"]),
        Route(run + "/tasks", board.add, methods=["POST"]),
        Route(task, board.whole),
        Route(task, board.change, methods=["PATCH"]),
    ]


def _pages() -> list[Route | Mount]:
    static = static_directory()

    async def index(_: Request) -> Response:
        page = static / "index.html"
        if not page.is_file():
            return PlainTextResponse("This copy of Shoal has no built pages. Build them: make web\n", 503)
        return FileResponse(page, headers={"Cache-Control": "no-cache"})

    return [Route("/", index), Mount("/static", StaticFiles(directory=static, check_dir=False))]
