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

from fake_runs import PREVIOUS_PLAN_TEXT, FakeRun
from shoal.core.events import Event, QuestionAnswered
from shoal.core.permissions.questions import Answer

STATIC = Path(__file__).parents[2] / "src" / "shoal" / "surfaces" / "web" / "static"
CONTENT_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class FakeWebServer:
    """A server that runs inside its `with` block. Tests can change everything that pages receive."""

    def __init__(self, fake_runs: Iterable[FakeRun], port: int = 0) -> None:
        self.fake_runs = {fake_run.session: fake_run for fake_run in fake_runs}
        self.posted: list[tuple[str, str, Any]] = []
        self.is_answered_elsewhere = False
        """True if somebody else has answered first."""
        self.opened_streams: list[tuple[str, str]] = []
        """Delta streams that pages opened, each with the offset it resumed at."""
        self.deltas: dict[str, list[tuple[str, Any]]] = {}
        self.listened_agents: set[str] = set()
        """Agents whose live stream a page has opened."""
        self.changed = threading.Condition()
        self.drop_count = 0
        """Number of times that all streams were cut."""
        self.new_run_count = 0
        """Number of runs that began while pages were open."""
        self.is_stopped = False
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _create_handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeWebServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add_events(self, session: str, *events: Event) -> None:
        with self.changed:
            self.fake_runs[session].add_events(*events)
            self.changed.notify_all()

    def stream_text(self, agent: str, kind: str, text: str) -> None:
        """Stream text of an agent to pages that listen now; later pages never receive it."""
        with self.changed:
            self.changed.wait_for(lambda: agent in self.listened_agents, timeout=30)
            self.deltas.setdefault(agent, []).append(("message", {"kind": kind, "text": text}))
            self.changed.notify_all()

    def add_entry(self, session: str, agent: str, role: str, by: str, *blocks: dict[str, Any]) -> None:
        with self.changed:
            self.fake_runs[session].add_entry(agent, role, by, *blocks)
            self.deltas.setdefault(agent, []).append(("entry", {}))
            self.changed.notify_all()

    def add_run(self, fake_run: FakeRun) -> None:
        """Add a run that begins now."""
        with self.changed:
            self.fake_runs[fake_run.session] = fake_run
            self.new_run_count += 1
            self.changed.notify_all()

    def drop_streams(self) -> None:
        """Cut every stream."""
        with self.changed:
            self.drop_count += 1
            self.changed.notify_all()

    def list_runs(self) -> list[dict[str, Any]]:
        found = []
        for fake_run in self.fake_runs.values():
            run_view, run = fake_run.run_view, fake_run.run_view.run
            found.append(
                {
                    "session": fake_run.session,
                    "cwd": run.cwd,
                    "prompt": run.prompt,
                    "began": run.began,
                    "last": run.last,
                    "live": fake_run.is_live,
                    "ended": run.ended,
                    "agents": sum(1 for _ in run_view.iter_agent_rows()),
                    "usd": run_view.costs.usd,
                    "tokens": run_view.costs.tokens,
                    "teams": run.teams,
                    "questions": len(run_view.list_open_questions()) if fake_run.is_live else 0,
                }
            )
        return found

    def list_questions(self) -> list[dict[str, Any]]:
        found = []
        for fake_run in self.fake_runs.values():
            for row in fake_run.run_view.list_open_questions() if fake_run.is_live else ():
                line = {"session": fake_run.session, "id": row.id, "agent": row.agent, "name": row.name}
                line |= {"asked": row.asked, "question": msgspec.to_builtins(row.question)}
                if line["question"]["type"] == "plan":
                    line["previous_plan"] = PREVIOUS_PLAN_TEXT
                found.append(line)
        return found

    def handle_post(self, session: str, path: str, body: Any) -> dict[str, Any]:
        self.posted.append((session, path, body))
        if path == "send" and body["text"] == "refuse":
            raise ValueError("This run has no process.")
        if path.startswith("questions/"):
            answer = msgspec.convert(body, Answer)
            if self.is_answered_elsewhere:
                return {"stands": False}
            question = unquote(path.removeprefix("questions/"))
            row = next(
                row for row in self.fake_runs[session].run_view.list_open_questions() if row.id == question
            )
            self.add_events(session, QuestionAnswered(agent=row.agent, question=question, answer=answer))
            return {"stands": True}
        return {}


def _create_handler(server_state: FakeWebServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one method for each door
    class FakeWebHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            path = [unquote(each) for each in parts.path.strip("/").split("/")]
            try:
                self._route_get(path, query)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = re.fullmatch(r"/api/runs/([^/]+)/(.+)", self.path)
            assert found
            try:
                self._send_json(server_state.handle_post(unquote(found[1]), found[2], body))
            except ValueError as problem:
                self._send_json({"error": str(problem)}, 409)

        do_PATCH = do_POST  # noqa: N815

        def _route_get(self, path: list[str], query: dict[str, str]) -> None:
            match path:
                case [""] | ["static", _]:
                    self._send_file(STATIC / (path[-1] or "index.html"))
                case ["api", "runs"]:
                    self._send_json(server_state.list_runs())
                case ["api", "questions"]:
                    self._send_json(server_state.list_questions())
                case ["api", "questions", "stream"]:
                    self._stream_questions()
                case ["api", "runs", session, *rest] if session in server_state.fake_runs:
                    self._route_run(server_state.fake_runs[session], rest, query)
                case _:
                    self._send_json({"error": "There is no such thing."}, 404)

        def _route_run(self, fake_run: FakeRun, rest: list[str], query: dict[str, str]) -> None:
            match rest:
                case ["frames"]:
                    since = self.headers.get("Last-Event-ID") or query.get("since", "0")
                    server_state.opened_streams.append((fake_run.session, since))
                    self._stream_deltas(fake_run, int(since))
                case ["replay"]:
                    self._send_json({"frames": fake_run.build_replay(int(query.get("frames", "400")))})
                case ["agents", agent, "transcript"]:
                    self._send_json(
                        get_transcript_page(fake_run, agent, int(query["after"]), int(query["limit"]))
                    )
                case ["agents", agent, "transcript", number]:
                    entry = json.loads(json.dumps(fake_run.transcripts[agent][int(number)]))
                    for block in entry["blocks"]:
                        if block.pop("cut", 0):
                            block["text"] += "\nthe rest of it"
                    self._send_json(entry)
                case ["agents", agent, "live"]:
                    self._stream_live(agent)

        def _send_file(self, path: Path) -> None:
            body = path.read_bytes() if path.is_file() else b""
            self._send_reply(200 if body else 404, CONTENT_TYPES.get(path.suffix, "text/plain"), body)

        def _send_json(self, value: Any, status: int = 200) -> None:
            self._send_reply(status, "application/json", msgspec.json.encode(value))

        def _send_reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", CONTENT_POLICY)
            self.end_headers()
            self.wfile.write(body)

        def _start_stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"retry: 100\n\n")
            self.close_connection = True

        def _send_event(self, value: Any, *, ident: int | None = None, kind: str = "message") -> None:
            head = "" if ident is None else f"id: {ident}\n"
            head += "" if kind == "message" else f"event: {kind}\n"
            self.wfile.write(head.encode() + b"data: " + msgspec.json.encode(value) + b"\n\n")

        def _stream_deltas(self, fake_run: FakeRun, since: int) -> None:
            self._start_stream()
            drop_count = server_state.drop_count
            while not server_state.is_stopped and server_state.drop_count == drop_count:
                with server_state.changed:
                    delta = msgspec.structs.replace(
                        fake_run.run_view.get_delta_since(since), live=fake_run.is_live
                    )
                if delta.offset > since or since == 0:
                    since = delta.offset
                    self._send_event(delta, ident=since)
                    continue
                with server_state.changed:
                    if (
                        fake_run.run_view.offset == since
                        and server_state.drop_count == drop_count
                        and not server_state.is_stopped
                    ):
                        server_state.changed.wait(5)

        def _stream_questions(self) -> None:
            self._start_stream()
            sent, run_count, drop_count = None, server_state.new_run_count, server_state.drop_count
            while not server_state.is_stopped and server_state.drop_count == drop_count:
                with server_state.changed:
                    questions = server_state.list_questions()
                    if questions == sent and run_count == server_state.new_run_count:
                        server_state.changed.wait(5)
                        continue
                if run_count != server_state.new_run_count:
                    run_count = server_state.new_run_count
                    self._send_event({}, kind="runs")
                else:
                    sent = questions
                    self._send_event(questions)

        def _stream_live(self, agent: str) -> None:
            self._start_stream()
            with server_state.changed:
                position, drop_count = len(server_state.deltas.get(agent, ())), server_state.drop_count
                server_state.listened_agents.add(agent)
                server_state.changed.notify_all()
            while not server_state.is_stopped and server_state.drop_count == drop_count:
                with server_state.changed:
                    new = server_state.deltas.get(agent, [])[position:]
                    if not new:
                        server_state.changed.wait(5)
                        continue
                position += len(new)
                for kind, value in new:
                    self._send_event(value, kind=kind)

    return FakeWebHandler


def get_transcript_page(fake_run: FakeRun, agent: str, after: int, limit: int) -> dict[str, Any]:
    entries = fake_run.transcripts.get(agent, [])
    start = max(0, len(entries) - limit) if after < 0 else min(after, len(entries))
    end = min(len(entries), start + limit)
    return {"entries": entries[start:end], "next": end, "total": len(entries)}


def export_html(fake_run: FakeRun) -> str:
    """Export the run as one file that needs no server, as `shoal export --html` does."""
    data = msgspec.json.encode(
        {"run": fake_run.run_view.run, "frames": fake_run.build_replay(), "transcripts": fake_run.transcripts}
    ).decode()
    script = (STATIC / "app.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{(STATIC / 'app.css').read_text(encoding='utf-8')}</style></head><body>"
        '<div id="app"></div><script type="application/json" id="shoal-export">'
        f"{data.replace('<', chr(92) + 'u003c')}</script>"
        f"<script>{script}</script></body></html>"
    )
