"""Fetches one web page with limits on time and size, from public addresses only by default."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from shoal.core.errors import ShoalError
from shoal.core.tls_contexts import TlsVariables, get_tls_context
from shoal.tools.tool_texts import format_tool_text, load_tool_text

if TYPE_CHECKING:
    import httpx

MAX_BODY_BYTES = 5 * 1024 * 1024
MAX_REDIRECTS = 5
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_HEADERS = {
    "User-Agent": "shoal (a program that reads pages for a person)",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip",
}


class WebPageFetchRefusedError(ShoalError):
    """The page was not fetched; the text is for the model."""


class FetchedWebPage(Struct, frozen=True, kw_only=True):
    url: str
    """URL after redirects."""
    status: int
    reason: str
    media_type: str
    charset: str | None
    body: bytes
    truncated: bool
    """True if the body is longer than what was read."""
    size: int | None
    """Size declared by the server."""


class UnfollowedCrossHostRedirect(Struct, frozen=True, kw_only=True):
    """Redirect to another host, which is not followed."""

    status: int
    target: str


async def fetch_web_page(url: str, *, allow_private: bool) -> FetchedWebPage | UnfollowedCrossHostRedirect:
    """Fetch a page. Raises `WebPageFetchRefusedError`. The caller sets the deadline."""
    import httpx

    async with httpx.AsyncClient(
        timeout=httpx.Timeout(20, connect=10),
        trust_env=False,
        verify=get_tls_context(TlsVariables()),
        follow_redirects=False,
    ) as client:
        for _ in range(MAX_REDIRECTS + 1):
            parts = parse_page_url(url)
            response = await _request_page(client, parts, allow_private=allow_private)
            if isinstance(response, FetchedWebPage):
                return response
            target = urljoin(url, response.target)
            if not _is_same_host(parts, parse_page_url(target)):
                return UnfollowedCrossHostRedirect(status=response.status, target=target)
            url = target
    raise WebPageFetchRefusedError(
        format_tool_text("WebFetch", "redirect_loop", url=url, maximum=MAX_REDIRECTS)
    )


def parse_page_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "invalid_url", url=repr(url), error=error)
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WebPageFetchRefusedError(format_tool_text("WebFetch", "incomplete_url", url=repr(url)))
    if parts.username is not None:
        raise WebPageFetchRefusedError(load_tool_text("WebFetch", "credentials"))
    if not parts.hostname.isascii():
        # Domain rules are written in ASCII, and DNS lookup maps other letters to ASCII.
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "not_ascii", host=parts.hostname, ascii=_encode_idna(parts.hostname))
        )
    return parts


def _encode_idna(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return "its ASCII form"


def _is_same_host(first: SplitResult, other: SplitResult) -> bool:
    def get_host_and_port(parts: SplitResult) -> tuple[str | None, int | None]:
        return parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)

    hosts_and_ports = (
        first.hostname,
        other.hostname,
        get_host_and_port(first)[1],
        get_host_and_port(other)[1],
    )
    return get_host_and_port(first) == get_host_and_port(other) or hosts_and_ports == (
        other.hostname,
        first.hostname,
        80,
        443,
    )


async def _request_page(
    client: httpx.AsyncClient, parts: SplitResult, *, allow_private: bool
) -> FetchedWebPage | UnfollowedCrossHostRedirect:
    import httpx

    assert parts.hostname is not None
    addresses = await _resolve_host_addresses(parts.hostname, parts.port or 0)
    if not allow_private and (private := [a for a in addresses if not is_public_ip_address(a)]):
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "private", host=parts.hostname, address=private[0])
        )
    try:
        url = httpx.URL(parts.geturl()).copy_with(fragment=None)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "invalid_url", url=repr(parts.geturl()[:200]), error=error)
        ) from error
    problem = ""
    for address in addresses:
        # Connects to the address that was checked: a second lookup could return another.
        request = client.build_request(
            "GET",
            url.copy_with(host=address),
            headers={**_HEADERS, "Host": parts.netloc},
            extensions={**_build_timeout_extension(client), "sni_hostname": parts.hostname},
        )
        try:
            response = await client.send(request, stream=True)
        except httpx.ConnectError as error:
            problem = str(error)
            continue
        except httpx.HTTPError as error:
            raise WebPageFetchRefusedError(
                format_tool_text("WebFetch", "failed", url=parts.geturl(), error=_describe_http_error(error))
            ) from error
        try:
            return await _read_page_response(response, parts.geturl())
        except httpx.HTTPError as error:
            raise WebPageFetchRefusedError(
                format_tool_text("WebFetch", "cut_off", url=parts.geturl(), error=_describe_http_error(error))
            ) from error
        finally:
            await response.aclose()
    raise WebPageFetchRefusedError(
        format_tool_text("WebFetch", "no_connection", host=parts.netloc, error=problem)
    )


def _describe_http_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def _build_timeout_extension(client: httpx.AsyncClient) -> dict[str, Any]:
    return {"timeout": client.timeout.as_dict()}


async def _resolve_host_addresses(host: str, port: int) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "unknown_host", host=host, error=error)
        ) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public_ip_address(address: str) -> bool:
    """Return True if an address, and any address embedded in it, is on the public internet."""
    from ipaddress import IPv6Address, ip_address

    parsed = ip_address(address.partition("%")[0])
    if not parsed.is_global or parsed.is_multicast:
        return False
    if not isinstance(parsed, IPv6Address):
        return True
    embedded = [parsed.ipv4_mapped, parsed.sixtofour, *(parsed.teredo or ())]
    if parsed.packed.startswith(bytes.fromhex("0064ff9b")):
        embedded.append(ip_address(parsed.packed[-4:]))
    return all(each is None or is_public_ip_address(str(each)) for each in embedded)


async def _read_page_response(
    response: httpx.Response, url: str
) -> FetchedWebPage | UnfollowedCrossHostRedirect:
    if response.status_code in _REDIRECT_STATUSES and "location" in response.headers:
        return UnfollowedCrossHostRedirect(status=response.status_code, target=response.headers["location"])
    body = bytearray()
    # Decompressed here, because a few bytes can expand to gigabytes.
    decompressor = (
        zlib.decompressobj(47) if response.headers.get("content-encoding") in ("gzip", "deflate") else None
    )
    async for raw in response.aiter_raw():
        try:
            body += (
                raw if decompressor is None else decompressor.decompress(raw, MAX_BODY_BYTES + 1 - len(body))
            )
        except zlib.error as error:
            raise WebPageFetchRefusedError(
                format_tool_text("WebFetch", "bad_compression", url=url, error=error)
            ) from error
        if len(body) > MAX_BODY_BYTES:
            break
    declared_size = response.headers.get("content-length", "")
    return FetchedWebPage(
        url=url,
        status=response.status_code,
        reason=response.reason_phrase,
        media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        charset=response.charset_encoding,
        body=bytes(body[:MAX_BODY_BYTES]),
        truncated=len(body) > MAX_BODY_BYTES,
        size=int(declared_size) if declared_size.isdecimal() else None,
    )
