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

if TYPE_CHECKING:
    import httpx

LARGEST = 5 * 1024 * 1024
MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {
    "User-Agent": "shoal (a program that reads pages for a person)",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip",
}


class Refused(ShoalError):
    """The page was not fetched; the text is for the model."""


class Fetched(Struct, frozen=True, kw_only=True):
    url: str
    """URL after redirects."""
    status: int
    reason: str
    media_type: str
    charset: str | None
    body: bytes
    cut: bool
    """True if the body is longer than what was read."""
    size: int | None
    """Size declared by the server."""


class ElsewhereRedirect(Struct, frozen=True, kw_only=True):
    """Redirect to another host, which is not followed."""

    status: int
    target: str


async def fetch(url: str, *, allow_private: bool) -> Fetched | ElsewhereRedirect:
    """Fetch a page. Raises `FetchRefused`. The caller sets the deadline."""
    import httpx

    async with httpx.AsyncClient(
        timeout=httpx.Timeout(20, connect=10), trust_env=False, follow_redirects=False
    ) as client:
        for _ in range(MOST_REDIRECTS + 1):
            parts = checked(url)
            got = await _get(client, parts, allow_private=allow_private)
            if isinstance(got, Fetched):
                return got
            target = urljoin(url, got.target)
            if not _same_host(parts, checked(target)):
                return ElsewhereRedirect(status=got.status, target=target)
            url = target
    raise Refused(f"{url} redirects more than {MOST_REDIRECTS} times.")


def checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise Refused(f"{url!r} is not an address of a page: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused(
            f"{url!r} cannot be fetched: give a whole address that starts with https:// or http://."
        )
    if parts.username is not None:
        raise Refused("An address with a user name or password in it is not fetched.")
    if not parts.hostname.isascii():
        # Domain rules are written in ASCII, and DNS lookup maps other letters to ASCII.
        raise Refused(f"The host {parts.hostname} is not in ASCII: write it as {_ascii(parts.hostname)}.")
    return parts


def _ascii(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return "the ASCII form it has"


def _same_host(one: SplitResult, other: SplitResult) -> bool:
    def place(parts: SplitResult) -> tuple[str | None, int | None]:
        return parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)

    upgraded = (one.hostname, other.hostname, place(one)[1], place(other)[1])
    return place(one) == place(other) or upgraded == (other.hostname, one.hostname, 80, 443)


async def _get(
    client: httpx.AsyncClient, parts: SplitResult, *, allow_private: bool
) -> Fetched | ElsewhereRedirect:
    import httpx

    assert parts.hostname is not None
    addresses = await _resolved(parts.hostname, parts.port or 0)
    if not allow_private and (private := [a for a in addresses if not is_public(a)]):
        raise Refused(
            f"{parts.hostname} is at {private[0]}, which is not a public address: pages of this machine and "
            "its network are not fetched. Ask the person, or use a shell command if that is allowed."
        )
    try:
        url = httpx.URL(parts.geturl()).copy_with(fragment=None)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise Refused(f"{parts.geturl()[:200]!r} is not an address of a page: {error}.") from error
    trouble = ""
    for address in addresses:
        # Connects to the address that was checked: a second lookup could return another.
        request = client.build_request(
            "GET",
            url.copy_with(host=address),
            headers={**_HEADERS, "Host": parts.netloc},
            extensions={**_timeouts(client), "sni_hostname": parts.hostname},
        )
        try:
            response = await client.send(request, stream=True)
        except httpx.ConnectError as error:
            trouble = str(error)
            continue
        except httpx.HTTPError as error:
            raise Refused(f"{parts.geturl()} could not be fetched: {_said(error)}.") from error
        try:
            return await _read(response, parts.geturl())
        except httpx.HTTPError as error:
            raise Refused(f"{parts.geturl()} broke off: {_said(error)}.") from error
        finally:
            await response.aclose()
    raise Refused(f"No connection to {parts.netloc}: {trouble}.")


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _timeouts(client: httpx.AsyncClient) -> dict[str, Any]:
    return {"timeout": client.timeout.as_dict()}


async def _resolved(host: str, port: int) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refused(f"The host {host} is not known: {error}.") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Return True if an address, and any address embedded in it, is on the public internet."""
    from ipaddress import IPv6Address, ip_address

    whole = ip_address(address.partition("%")[0])
    if not whole.is_global or whole.is_multicast:
        return False
    if not isinstance(whole, IPv6Address):
        return True
    inside = [whole.ipv4_mapped, whole.sixtofour, *(whole.teredo or ())]
    if whole.packed.startswith(bytes.fromhex("0064ff9b")):
        inside.append(ip_address(whole.packed[-4:]))
    return all(each is None or is_public(str(each)) for each in inside)


async def _read(response: httpx.Response, url: str) -> Fetched | ElsewhereRedirect:
    if response.status_code in _REDIRECTS and "location" in response.headers:
        return ElsewhereRedirect(status=response.status_code, target=response.headers["location"])
    body = bytearray()
    # Decompressed here, because a few bytes can expand to gigabytes.
    unpack = (
        zlib.decompressobj(47) if response.headers.get("content-encoding") in ("gzip", "deflate") else None
    )
    async for raw in response.aiter_raw():
        try:
            body += raw if unpack is None else unpack.decompress(raw, LARGEST + 1 - len(body))
        except zlib.error as error:
            raise Refused(f"{url} sent broken compressed data: {error}.") from error
        if len(body) > LARGEST:
            break
    declared = response.headers.get("content-length", "")
    return Fetched(
        url=url,
        status=response.status_code,
        reason=response.reason_phrase,
        media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        charset=response.charset_encoding,
        body=bytes(body[:LARGEST]),
        cut=len(body) > LARGEST,
        size=int(declared) if declared.isdecimal() else None,
    )
