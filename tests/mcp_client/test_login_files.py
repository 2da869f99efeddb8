"""The file with the login of a server, and the address to which a login returns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp_helpers import reserve_port

from shoal.app.mcp.mcp_host import open_mcp_token_file
from shoal.core.errors import StateFileError


def test_a_login_is_kept_in_a_private_file_and_can_be_removed(tmp_path: Path) -> None:
    login = open_mcp_token_file(tmp_path, "far.away", "https://a.example/mcp")
    assert login.read() == b""
    assert login.remove() is False
    login.write(b"secret")
    (path,) = (tmp_path / "shoal/keys/mcp.auth").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.name.startswith("far_away-")
    again = open_mcp_token_file(tmp_path, "far.away", "https://a.example/mcp")
    assert again.read() == b"secret"
    assert again.remove() is True
    assert again.read() == b""


def test_another_address_or_name_has_another_login(tmp_path: Path) -> None:
    open_mcp_token_file(tmp_path, "far", "https://a.example/mcp").write(b"secret")
    for name, url in (("far", "https://b.example/mcp"), ("near", "https://a.example/mcp")):
        assert open_mcp_token_file(tmp_path, name, url).read() == b""
    long = open_mcp_token_file(tmp_path, "x" * 300, "https://a.example/mcp")
    long.write(b"other")
    assert long.read() == b"other"


def test_a_login_that_cannot_be_read_or_removed_is_an_error(tmp_path: Path) -> None:
    login = open_mcp_token_file(tmp_path, "far", "https://a.example/mcp")
    login.write(b"secret")
    (path,) = (tmp_path / "shoal/keys/mcp.auth").iterdir()
    path.unlink()
    path.mkdir()
    with pytest.raises(StateFileError, match="Cannot read"):
        login.read()
    with pytest.raises(StateFileError, match="Cannot remove"):
        login.remove()


@pytest.mark.needs("mcp")
async def test_a_registered_address_of_a_login_has_its_port_and_the_name_localhost() -> None:
    from shoal.tools.mcp.oauth import McpOAuthCallbackServer

    with reserve_port() as port:
        async with asyncio.timeout(20), McpOAuthCallbackServer(port) as server:
            assert server.url == f"http://localhost:{port}/callback"
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
    async with McpOAuthCallbackServer() as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.url.endswith("/callback")
