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
from shoal.surfaces.web.access_guard import WebAccessGuard, WebAccessPolicy
from shoal.surfaces.web.board_routes import TaskBoardWebRoutes
from shoal.surfaces.web.control_routes import RunControlWebRoutes
from shoal.surfaces.web.json_replies import WebApiRequestRefusedError, reply_to_refusal, reply_to_server_error
from shoal.surfaces.web.read_routes import RunReadWebRoutes
from shoal.surfaces.web.web_context import WebContext


def get_static_directory() -> Path:
    """Return the directory of the built front end, which is part of the package."""
    return Path(str(files("shoal.surfaces.web"))) / "static"


def create_web_application(context: WebContext, policy: WebAccessPolicy) -> WebAccessGuard:
    handlers = {
        WebApiRequestRefusedError: reply_to_refusal,
        ShoalError: reply_to_refusal,
        HTTPException: reply_to_refusal,
        Exception: reply_to_server_error,
    }
    routes = [Mount("/api", routes=_build_api_routes(context)), *_build_page_routes()]
    # Outermost, so that error replies are guarded too.
    return WebAccessGuard(Starlette(routes=routes, exception_handlers=handlers), policy)


def _build_api_routes(context: WebContext) -> list[Route]:
    read_routes, control_routes, board = (
        RunReadWebRoutes(context),
        RunControlWebRoutes(context),
        TaskBoardWebRoutes(context),
    )
    run = "/runs/{session}"
    agent = run + "/agents/{agent}"
    task = run + "/tasks/{board}/{task}"
    return [
        Route("/runs", read_routes.list_runs),
        Route(run + "/frames", read_routes.stream_view_deltas),
        Route(run + "/replay", read_routes.get_replay),
        Route(run + "/letters/{team}/{to}/{letter}", read_routes.get_mail_message),
        Route(agent + "/transcript", read_routes.get_transcript),
        Route(agent + "/transcript/{n:int}", read_routes.get_transcript_entry),
        Route(agent + "/live", read_routes.stream_live_agent),
        Route("/questions", read_routes.list_questions),
        Route("/questions/stream", read_routes.stream_questions),
        Route(run + "/questions/{question}", control_routes.answer_question, methods=["POST"]),
        Route(run + "/send", control_routes.send_message, methods=["POST"]),
        Route(run + "/interrupt", control_routes.interrupt_agent, methods=["POST"]),
        Route(run + "/stop", control_routes.stop_agent, methods=["POST"]),
        Route(run + "/kill", control_routes.kill_agent, methods=["POST"]),
        Route(run + "/restart", control_routes.restart_agent, methods=["POST"]),
        Route(run + "/background", control_routes.move_agent_to_background, methods=["POST"]),
        Route(run + "/mode", control_routes.set_permission_mode, methods=["POST"]),
        Route(run + "/tasks", board.post_task, methods=["POST"]),
        Route(task, board.get_task),
        Route(task, board.patch_task, methods=["PATCH"]),
    ]


def _build_page_routes() -> list[Route | Mount]:
    static_directory = get_static_directory()

    async def serve_index(_: Request) -> Response:
        page = static_directory / "index.html"
        if not page.is_file():
            return PlainTextResponse("This copy of Shoal has no built web pages. Build them: make web\n", 503)
        return FileResponse(page, headers={"Cache-Control": "no-cache"})

    return [
        Route("/", serve_index),
        Mount("/static", StaticFiles(directory=static_directory, check_dir=False)),
    ]
