"""Addresses of databases: how messages show them, and why one cannot be used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

from shoal.core.errors import SettingsError

_MAX_PORT = 65535
_QUERY = re.compile(r"(?:[a-z_]+=[^&]*(?:&[a-z_]+=[^&]*)*)?")
_OPTIONS = re.compile(r"[?#]")
_BRACKETED_HOST = re.compile(r"\[[^\]]+\](?::(.*))?")


def check_database_address(address: str) -> None:
    """Raise `SettingsError` if no server can have this address."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        # Neither the address nor the name that the error contains is shown: the password cannot be found.
        problem = str(error)
        if "netloc" in problem:
            problem = "it contains a character that is not allowed before the database"
        raise build_address_error("", problem) from None
    if _find_unescaped_password_end(parts) >= 0:
        problem = "the user name or the password has a # or ? that is not written as %23 or %3F"
        raise build_address_error(hide_password(address), problem)
    for port in _list_ports(parts):
        if port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT:
            continue
        if "@" in parts.path:
            # Perhaps not a port, but the beginning of a password.
            problem = "the user name or the password has a / that is not written as %2F"
        else:
            problem = f"the port {port!r} is not a number from 1 to {_MAX_PORT}"
            if ":" in port:
                problem += "; an IPv6 address needs brackets, such as [::1]"
        raise build_address_error(hide_password(address), problem)


def build_address_error(shown_address: str, problem: str) -> SettingsError:
    shown = f"The address {shown_address} of the store" if shown_address else "The address of the store"
    return SettingsError(
        f"{shown} is not valid: {problem.rstrip('.')}. Use postgresql://USER@HOST:PORT/DATABASE, and correct "
        "it where you set it: --store, SHOAL_STORE or the setting shoal.store."
    )


def hide_password(address: str) -> str:
    """Return the address for messages, without its password and options."""
    parts = urlsplit(address)
    user, separator, place = parts.netloc.rpartition("@")
    path = parts.path
    if (end := _find_unescaped_password_end(parts)) >= 0:
        user, separator, place, path = "", "", "", f"…{_OPTIONS.split(_join_rest(parts)[end:])[0]}"
    elif "@" in path:  # a password with a / ends there
        user, separator, place, path = "", "", "", f"…{path[path.rindex('@') :]}"
    return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{separator}{place}", path, "", ""))


def _find_unescaped_password_end(parts: SplitResult) -> int:
    """Return where a password with a # or ? ends in the text after that; less than 0 if there is none."""
    if not parts.fragment and _QUERY.fullmatch(parts.query):
        return -1
    return _join_rest(parts).rfind("@")


def _join_rest(parts: SplitResult) -> str:
    return f"{parts.query}#{parts.fragment}"


def _list_ports(parts: SplitResult) -> Iterator[str]:
    """Return the ports of all hosts, as they are written."""
    for host in parts.netloc.rpartition("@")[2].split(","):
        if host.startswith("["):
            found = _BRACKETED_HOST.fullmatch(host)
            port = host if found is None else found[1]
        else:
            port = host.partition(":")[2]
        if port:
            yield unquote(port)
    for value in parse_qs(parts.query).get("port", ()):
        yield from filter(None, value.split(","))
