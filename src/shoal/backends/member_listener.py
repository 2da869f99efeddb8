"""TCP connections between a lead and processes on other machines, which authenticate with a secret.

The secret itself is never sent. What follows the handshake is encrypted if Ray encrypts its own messages.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.task_groups import BackgroundTasks

if TYPE_CHECKING:
    import ssl

HANDSHAKE_TIMEOUT = 10.0
CONNECT_TIMEOUT = 10.0
SILENCE_TIMEOUT = 9
"""Seconds after which the system ends a connection to a machine that no longer answers."""
_PROBE_PAUSE = 3
_KEY_SIZE, _SECRET_SIZE, _NONCE_SIZE = 16, 32, 32
_MAC_SIZE = 32


_TLS_VARIABLES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


class TlsFiles(Struct, frozen=True, kw_only=True):
    """Files of this machine with which Ray encrypts its messages; connections to a lead use them too."""

    certificate: str
    key: str
    authority: str

    def create_context(self, *, is_lead: bool) -> ssl.SSLContext:
        """Return a context in which both ends need a certificate of the authority. Raises `ProcessError`."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_lead else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The secret of the handshake tells the lead from other machines that have a certificate.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except OSError as error:
            raise ProcessError(format_backend_notice("bad_tls_files", error=error)) from error
        return context


def read_tls_files(environ: Mapping[str, str]) -> TlsFiles | None:
    """Return the files that Ray is told to use; None if it does not encrypt. Raises `ProcessError`."""
    if environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    certificate, key, authority = (environ.get(name, "") for name in _TLS_VARIABLES)
    if not (certificate and key and authority):
        raise ProcessError(format_backend_notice("no_tls_files", names=", ".join(_TLS_VARIABLES)))
    return TlsFiles(certificate=certificate, key=key, authority=authority)


class LeadAddress(Struct, frozen=True, kw_only=True):
    """Where a process reaches the lead, and the secret with which it proves who it is."""

    host: str
    port: int
    key: str
    """Identifies the connection, in hexadecimal digits."""
    secret: str
    is_encrypted: bool = False


class MemberListener:
    """Accepts the connections that the lead expects, each once."""

    def __init__(self, host: str, clock: Clock, tls: TlsFiles | None = None) -> None:
        """`host` is the address of this machine for the others. Raises `ProcessError`."""
        self._host = host
        self._context = None if tls is None else tls.create_context(is_lead=True)
        self._clock = clock
        self._expected: dict[bytes, tuple[bytes, asyncio.Future[SocketChannel]]] = {}
        self._socket: socket.socket | None = None
        self._tasks = BackgroundTasks()

    def open(self) -> None:
        """Start to listen on a free port. Raises `ProcessError`."""
        listener = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((self._host, 0))
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise ProcessError(
                format_backend_notice("not_listening", host=self._host, error=error)
            ) from error
        listener.setblocking(False)  # noqa: FBT003
        self._socket = listener
        self._tasks.start(self._accept_connections(listener))

    def expect_connection(self) -> tuple[LeadAddress, asyncio.Future[SocketChannel]]:
        """Return an address for one process, and the future of its connection."""
        assert self._socket is not None
        key, secret = secrets.token_bytes(_KEY_SIZE), secrets.token_bytes(_SECRET_SIZE)
        connection: asyncio.Future[SocketChannel] = asyncio.get_running_loop().create_future()
        self._expected[key] = (secret, connection)
        connection.add_done_callback(lambda _: self._expected.pop(key, None))
        port = self._socket.getsockname()[1]
        address = LeadAddress(
            host=self._host,
            port=port,
            key=key.hex(),
            secret=secret.hex(),
            is_encrypted=self._context is not None,
        )
        return address, connection

    async def aclose(self) -> None:
        await self._tasks.aclose()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for _, connection in list(self._expected.values()):
            connection.cancel()

    async def _accept_connections(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            connection.setblocking(False)  # noqa: FBT003
            self._tasks.start(self._admit_connection(connection))

    async def _admit_connection(self, connection: socket.socket) -> None:
        """Pass an expected connection on; close any other without an answer."""
        try:
            async with self._clock.deadline(HANDSHAKE_TIMEOUT):
                expected = await self._check_handshake(connection)
                if expected is not None and self._context is not None:
                    connection = await _encrypt(connection, self._context, is_lead=True)
        except (OSError, EOFError):
            expected = None
        except BaseException:
            connection.close()
            raise
        if expected is None or expected.done():
            connection.close()
            return
        limit_silence(connection)
        expected.set_result(_open_channel(connection, is_encrypted=self._context is not None))

    async def _check_handshake(self, connection: socket.socket) -> asyncio.Future[SocketChannel] | None:
        loop = asyncio.get_running_loop()
        nonce = secrets.token_bytes(_NONCE_SIZE)
        await loop.sock_sendall(connection, nonce)
        answer = await _receive_exactly(connection, _KEY_SIZE + _NONCE_SIZE + _MAC_SIZE)
        key, peer_nonce = answer[:_KEY_SIZE], answer[_KEY_SIZE : _KEY_SIZE + _NONCE_SIZE]
        secret, expected = self._expected.get(key, (b"", None))
        if expected is None or not hmac.compare_digest(
            answer[-_MAC_SIZE:], _sign(secret, b"member", nonce, peer_nonce)
        ):
            return None
        await loop.sock_sendall(connection, _sign(secret, b"lead", nonce, peer_nonce))
        return expected


async def connect_to_lead(address: LeadAddress, clock: Clock, tls: TlsFiles | None = None) -> SocketChannel:
    """Connect from another machine. Raises `ProcessError`."""
    loop = asyncio.get_running_loop()
    if address.is_encrypted and tls is None:
        raise ProcessError(format_backend_notice("lead_needs_tls", names=", ".join(_TLS_VARIABLES)))
    context = tls.create_context(is_lead=False) if tls is not None and address.is_encrypted else None
    connection = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    connection.setblocking(False)  # noqa: FBT003
    secret = bytes.fromhex(address.secret)
    try:
        async with clock.deadline(CONNECT_TIMEOUT):
            await loop.sock_connect(connection, (address.host, address.port))
            nonce = await _receive_exactly(connection, _NONCE_SIZE)
            own_nonce = secrets.token_bytes(_NONCE_SIZE)
            proof = _sign(secret, b"member", nonce, own_nonce)
            await loop.sock_sendall(connection, bytes.fromhex(address.key) + own_nonce + proof)
            answer = await _receive_exactly(connection, _MAC_SIZE)
            if not hmac.compare_digest(answer, _sign(secret, b"lead", nonce, own_nonce)):
                raise ProcessError(  # noqa: TRY301 - closes the connection as all other failures do
                    format_backend_notice("not_the_lead", host=address.host, port=address.port)
                )
            if context is not None:
                connection = await _encrypt(connection, context, is_lead=False)
    except (OSError, EOFError) as error:  # TimeoutError is an OSError
        connection.close()
        raise ProcessError(
            format_backend_notice("lead_unreachable", host=address.host, port=address.port, error=error)
        ) from error
    except BaseException:
        connection.close()
        raise
    limit_silence(connection)
    return _open_channel(connection, is_encrypted=context is not None)


async def _encrypt(connection: socket.socket, context: ssl.SSLContext, *, is_lead: bool) -> ssl.SSLSocket:
    """Encrypt a connection. Raises `OSError` if the other end has no valid certificate."""
    import ssl

    loop = asyncio.get_running_loop()
    encrypted = context.wrap_socket(connection, server_side=is_lead, do_handshake_on_connect=False)
    try:
        while True:
            try:
                encrypted.do_handshake()
            except ssl.SSLWantReadError:
                await _wait_until_ready(encrypted, loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _wait_until_ready(encrypted, loop.add_writer, loop.remove_writer)
            else:
                return encrypted
    except BaseException:
        encrypted.close()
        raise


async def _wait_until_ready(
    connection: socket.socket, add: Callable[..., object], remove: Callable[[socket.socket], object]
) -> None:
    ready = asyncio.Event()
    add(connection, ready.set)
    try:
        await ready.wait()
    finally:
        remove(connection)


def _open_channel(connection: socket.socket, *, is_encrypted: bool) -> SocketChannel:
    if not is_encrypted:
        return SocketChannel(connection)
    import ssl

    return SocketChannel(connection, not_ready=(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError))


def limit_silence(connection: socket.socket) -> None:
    """Make the system end a connection whose other machine is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBE_PAUSE),
        ("TCP_KEEPALIVE", _PROBE_PAUSE),  # the name of the same option on macOS
        ("TCP_KEEPINTVL", _PROBE_PAUSE),
        ("TCP_KEEPCNT", SILENCE_TIMEOUT // _PROBE_PAUSE - 1),
        ("TCP_USER_TIMEOUT", SILENCE_TIMEOUT * 1000),
    ):
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def find_own_address(peer: str) -> str:
    """Return the address that this machine uses to reach another, given as HOST:PORT."""
    host, _, port = peer.rpartition(":")
    try:
        family, kind, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # chooses a route; nothing is sent
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise ProcessError(
            format_backend_notice("bad_cluster_address", address=repr(peer), error=error)
        ) from error


async def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        part = await loop.sock_recv(connection, size - len(data))
        if not part:
            raise EOFError("the connection was closed")
        data += part
    return data


def _sign(secret: bytes, role: bytes, *nonces: bytes) -> bytes:
    return hmac.digest(secret, role + b"".join(nonces), "sha256")
