"""Real git servers on loopback: git's own protocol, HTTPS with a password, and one that never answers."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from shoal.backends.member_listener import TlsFiles

_CGI_HEADERS = ("Content-Type", "Content-Length", "Content-Encoding", "Git-Protocol")


class GitServer:
    """Address of a server, and what it has seen."""

    def __init__(self, scheme: str, port: int) -> None:
        self.address = f"{scheme}://127.0.0.1:{port}"
        self.connections = 0
        self.connected = threading.Event()
        self.ended = threading.Event()
        """Set when a client has closed its connection."""
        self.credentials: set[str] = set()

    def note_connection(self) -> None:
        self.connections += 1
        self.connected.set()


@contextmanager
def run_git_daemon(directory: Path) -> Iterator[GitServer]:
    """Serve the repositories in a directory with `git daemon`."""
    command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={directory}"]

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            found.note_connection()
            subprocess.run(
                command, stdin=self.request, stdout=self.request, stderr=subprocess.DEVNULL, check=False
            )

    with _run_server(ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        found = GitServer("git", port)
        yield found


@contextmanager
def run_silent_server(scheme: str) -> Iterator[GitServer]:
    """Accept connections and never answer."""
    connections: list[socket.socket] = []

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            connections.append(self.request)
            found.note_connection()
            with suppress(ConnectionResetError):
                while self.request.recv(4096):
                    pass
            found.ended.set()

    with _run_server(ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        found = GitServer(scheme, port)
        try:
            yield found
        finally:
            for connection in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def run_https_server(directory: Path, tls: TlsFiles, *, user: str, password: str) -> Iterator[GitServer]:
    """Serve the repositories in a directory with `git http-backend` to one user."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
            credentials = base64.b64decode(encoded).decode() if scheme == "Basic" else ""
            if credentials:
                found.credentials.add(credentials)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if credentials != f"{user}:{password}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            found.note_connection()
            variables = {
                "GIT_PROJECT_ROOT": str(directory),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "REMOTE_USER": user,
                **self._list_header_variables(),
            }
            done = subprocess.run(
                ["git", "http-backend"],
                env={**os.environ, **variables},
                input=body,
                capture_output=True,
                check=True,
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _list_header_variables(self) -> dict[str, str]:
            named = {name.upper().replace("-", "_"): self.headers.get(name, "") for name in _CGI_HEADERS}
            return {**named, **{f"HTTP_{name}": value for name, value in named.items()}}

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with _run_server(server) as port:
        found = GitServer("https", port)
        yield found


@contextmanager
def _run_server(server: ThreadingTCPServer | ThreadingHTTPServer) -> Iterator[int]:
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
