"""A fake web view server: the same routes as the real one, answered from fake runs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from shoal.core.events import Answered, Event
from shoal.core.questions import Answer
from web_scenes import PLAN_BEFORE, Scene

STATIC = Path(__file__).parents[2] / "src" / "shoal" / "surfaces" / "web" / "static"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Stage:
    """A server that runs inside its `with` block. Tests can change everything that pages receive."""

    def __init__(self, scenes: Iterable[Scene], port: int = 0) -> None:
        self.scenes = {scene.session: scene for scene in scenes}
        self.posted: list[tuple[str, str, Any]] = []
        self.too_late = False
        """True if somebody else has answered first."""
        self.opened: list[tuple[str, str]] = []
        """Frame streams that pages opened, each with the offset it resumed at."""
        self.deltas: dict[str, list[tuple[str, Any]]] = {}
        self.heard: set[str] = set()
        """Agents whose live stream a page has opened."""
        self.changed = threading.Condition()
        self.dropped = 0
        """Number of times that all streams were cut."""
        self.stirs = 0
        """Number of runs that began while pages were open."""
        self.over = False
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Stage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def tell(self, session: str, *events: Event) -> None:
        with self.changed:
            self.scenes[session].tell(*events)
            self.changed.notify_all()

    def whisper(self, agent: str, kind: str, words: str) -> None:
        """Stream text of an agent to pages that listen now; later pages never receive it."""
        with self.changed:
            self.changed.wait_for(lambda: agent in self.heard, timeout=30)
            self.deltas.setdefault(agent, []).append(("message", {"kind": kind, "text": words}))
            self.changed.notify_all()

    def say(self, session: str, agent: str, role: str, by: str, *blocks: dict[str, Any]) -> None:
        with self.changed:
            self.scenes[session].say(agent, role, by, *blocks)
            self.deltas.setdefault(agent, []).append(("entry", {}))
            self.changed.notify_all()

    def enter(self, scene: Scene) -> None:
        """Add a run that begins now."""
        with self.changed:
            self.scenes[scene.session] = scene
            self.stirs += 1
            self.changed.notify_all()

    def drop(self) -> None:
        """Cut every stream."""
        with self.changed:
            self.dropped += 1
            self.changed.notify_all()

    def runs(self) -> list[dict[str, Any]]:
        found = []
        for scene in self.scenes.values():
            picture, run = scene.picture, scene.picture.run
            found.append(
                {
                    "session": scene.session,
                    "cwd": run.cwd,
                    "prompt": run.prompt,
                    "began": run.began,
                    "last": run.last,
                    "live": scene.live,
                    "ended": run.ended,
                    "agents": sum(1 for _ in picture.agents()),
                    "usd": picture.costs.usd,
                    "tokens": picture.costs.tokens,
                    "teams": run.teams,
                    "questions": len(picture.open_questions()) if scene.live else 0,
                }
            )
        return found

    def questions(self) -> list[dict[str, Any]]:
        found = []
        for scene in self.scenes.values():
            for row in scene.picture.open_questions() if scene.live else ():
                line = {"session": scene.session, "id": row.id, "agent": row.agent, "name": row.name}
                line |= {"asked": row.asked, "question": msgspec.to_builtins(row.question)}
                if line["question"]["type"] == "plan":
                    line["previous_plan"] = PLAN_BEFORE
                found.append(line)
        return found

    def post(self, session: str, door: str, body: Any) -> dict[str, Any]:
        self.posted.append((session, door, body))
        if door == "send" and body["text"] == "refuse":
            raise ValueError("No process works on this run.")
        if door.startswith("questions/"):
            answer = msgspec.convert(body, Answer)
            if self.too_late:
                return {"stands": False}
            question = unquote(door.removeprefix("questions/"))
            row = next(row for row in self.scenes[session].picture.open_questions() if row.id == question)
            self.tell(session, Answered(agent=row.agent, question=question, answer=answer))
            return {"stands": True}
        return {}


def _handler(stage: Stage) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one method for each door
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            path = [unquote(each) for each in parts.path.strip("/").split("/")]
            try:
                self._get(path, query)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = re.fullmatch(r"/api/runs/([^/]+)/(.+)", self.path)
            assert found
            try:
                self._json(stage.post(unquote(found[1]), found[2], body))
            except ValueError as problem:
                self._json({"error": str(problem)}, 409)

        do_PATCH = do_POST  # noqa: N815

        def _get(self, path: list[str], query: dict[str, str]) -> None:
            match path:
                case [""] | ["static", _]:
                    self._file(STATIC / (path[-1] or "index.html"))
                case ["api", "runs"]:
                    self._json(stage.runs())
                case ["api", "questions"]:
                    self._json(stage.questions())
                case ["api", "questions", "stream"]:
                    self._questions()
                case ["api", "runs", session, *rest] if session in stage.scenes:
                    self._of_run(stage.scenes[session], rest, query)
                case _:
                    self._json({"error": "There is no such thing."}, 404)

        def _of_run(self, scene: Scene, rest: list[str], query: dict[str, str]) -> None:
            match rest:
                case ["frames"]:
                    since = self.headers.get("Last-Event-ID") or query.get("since", "0")
                    stage.opened.append((scene.session, since))
                    self._frames(scene, int(since))
                case ["replay"]:
                    self._json({"frames": scene.replay(int(query.get("frames", "400")))})
                case ["agents", agent, "transcript"]:
                    self._json(page(scene, agent, int(query["after"]), int(query["limit"])))
                case ["agents", agent, "transcript", number]:
                    entry = json.loads(json.dumps(scene.transcripts[agent][int(number)]))
                    for block in entry["blocks"]:
                        if block.pop("cut", 0):
                            block["text"] += "\nthe rest of it"
                    self._json(entry)
                case ["agents", agent, "live"]:
                    self._live(agent)

        def _file(self, path: Path) -> None:
            body = path.read_bytes() if path.is_file() else b""
            self._reply(200 if body else 404, KINDS.get(path.suffix, "text/plain"), body)

        def _json(self, value: Any, status: int = 200) -> None:
            self._reply(status, "application/json", msgspec.json.encode(value))

        def _reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"retry: 100\n\n")
            self.close_connection = True

        def _event(self, value: Any, *, ident: int | None = None, kind: str = "message") -> None:
            head = "" if ident is None else f"id: {ident}\n"
            head += "" if kind == "message" else f"event: {kind}\n"
            self.wfile.write(head.encode() + b"data: " + msgspec.json.encode(value) + b"\n\n")

        def _frames(self, scene: Scene, since: int) -> None:
            self._stream()
            cut = stage.dropped
            while not stage.over and stage.dropped == cut:
                with stage.changed:
                    frame = msgspec.structs.replace(scene.picture.since(since), live=scene.live)
                if frame.offset > since or since == 0:
                    since = frame.offset
                    self._event(frame, ident=since)
                    continue
                with stage.changed:
                    if scene.picture.offset == since and stage.dropped == cut and not stage.over:
                        stage.changed.wait(5)

        def _questions(self) -> None:
            self._stream()
            told, stirs, cut = None, stage.stirs, stage.dropped
            while not stage.over and stage.dropped == cut:
                with stage.changed:
                    now = stage.questions()
                    if now == told and stirs == stage.stirs:
                        stage.changed.wait(5)
                        continue
                if stirs != stage.stirs:
                    stirs = stage.stirs
                    self._event({}, kind="runs")
                else:
                    told = now
                    self._event(now)

        def _live(self, agent: str) -> None:
            self._stream()
            with stage.changed:
                place, cut = len(stage.deltas.get(agent, ())), stage.dropped
                stage.heard.add(agent)
                stage.changed.notify_all()
            while not stage.over and stage.dropped == cut:
                with stage.changed:
                    new = stage.deltas.get(agent, [])[place:]
                    if not new:
                        stage.changed.wait(5)
                        continue
                place += len(new)
                for kind, value in new:
                    self._event(value, kind=kind)

    return Handler


def page(scene: Scene, agent: str, after: int, limit: int) -> dict[str, Any]:
    entries = scene.transcripts.get(agent, [])
    start = max(0, len(entries) - limit) if after < 0 else min(after, len(entries))
    end = min(len(entries), start + limit)
    return {"entries": entries[start:end], "next": end, "total": len(entries)}


def exported(scene: Scene) -> str:
    """Export the run as one file that needs no server, as `shoal export --html` does."""
    inside = msgspec.json.encode(
        {"run": scene.picture.run, "frames": scene.replay(), "transcripts": scene.transcripts}
    ).decode()
    script = (STATIC / "app.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{(STATIC / 'app.css').read_text(encoding='utf-8')}</style></head><body>"
        '<div id="app"></div><script type="application/json" id="shoal-export">'
        f"{inside.replace('<', chr(92) + 'u003c')}</script>"
        f"<script>{script}</script></body></html>"
    )
