"""Authentication of the web view, and the security headers of every reply."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from web_client import BEARER, TOKEN, serve_home

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/runs", "/api/questions/stream", "/nothing"])
async def test_every_request_without_the_token_is_refused(path: str) -> None:
    async with serve_home() as web, httpx.AsyncClient(base_url=web.base) as stranger:
        for given in ({}, {"token": "another"}, {"token": TOKEN[:-1]}):
            reply = await stranger.get(path, params=given)
            assert reply.status_code == 403
            assert "The token is missing or wrong." in reply.text
            assert ("error" in reply.json()) if path.startswith("/api") else reply.text.endswith(".\n")


async def test_the_token_moves_from_the_url_into_an_http_only_cookie() -> None:
    async with serve_home() as web, httpx.AsyncClient() as browser:
        reply = await browser.get(web.address)
        cookie = reply.headers["set-cookie"]
        assert (reply.status_code, reply.headers["location"]) == (303, "/")
        assert cookie.startswith(f"shoal_{web.base.rpartition(':')[2]}={TOKEN};")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await browser.get(f"{web.base}/api/runs")).status_code == 200


async def test_a_token_in_the_url_lets_a_program_in_without_a_cookie() -> None:
    async with serve_home() as web, httpx.AsyncClient() as program:
        reply = await program.get(f"{web.base}/api/runs", params={"token": TOKEN})
        assert reply.status_code == 200
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
async def test_a_page_of_another_server_is_refused_even_with_the_token(origin: str) -> None:
    async with serve_home() as web:
        cookie = {"Cookie": f"shoal_{web.base.rpartition(':')[2]}={TOKEN}"}
        for credentials in (cookie, BEARER):
            headers = {**credentials, "Origin": origin}
            async with httpx.AsyncClient(base_url=web.base, headers=headers) as browser:
                assert (await browser.get("/api/runs")).status_code == 403
                assert (await browser.get("/")).status_code == 403
                assert (await browser.post("/api/runs/x/send", json={})).status_code == 403


async def test_a_request_that_changes_state_must_have_an_origin() -> None:
    async with serve_home() as web:
        cookie = {"Cookie": f"shoal_{web.base.rpartition(':')[2]}={TOKEN}"}
        async with httpx.AsyncClient(base_url=web.base, headers=cookie) as browser:
            assert (await browser.post("/api/runs/x/send", json={})).status_code == 403
            own = await browser.post("/api/runs/x/send", json={}, headers={"Origin": web.base})
            assert own.status_code == 404
        assert (await web.client.post("/api/runs/x/send", json={})).status_code == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("localhost.evil.example", 403),
        ("192.0.2.1:80", 403),
        ("", 403),
        ("[::1].evil.example", 403),
        ("[::1].evil.example:80", 403),
        ("[::1]evil.example", 403),
        ("[::1]:80.evil.example", 403),
        ("[::1", 403),
        ("localhost:80:evil.example", 403),
        ("localhost:9000", 200),
        ("[::1]:9000", 200),
        ("127.0.0.1", 200),
    ],
)
async def test_a_foreign_host_name_is_refused(host: str, status: int) -> None:
    """And a tunnel may end at another port."""
    async with serve_home() as web:
        reply = await web.client.get("/api/runs", headers={"Host": host})
        assert reply.status_code == status


async def test_a_page_of_another_port_is_refused() -> None:
    async with serve_home() as web:
        for site, status in (("same-site", 403), ("cross-site", 403), ("same-origin", 200), ("none", 200)):
            reply = await web.client.get("/api/runs", headers={"Sec-Fetch-Site": site})
            assert reply.status_code == status


async def test_every_reply_has_security_headers() -> None:
    async with serve_home() as web:
        paths = ["/", "/static/none.js", "/api/runs", "/api/none", "/api/runs/none/replay"]
        replies = [await web.client.get(path) for path in paths]
        replies.append(await web.client.get("/api/runs", headers={"Host": "evil.example"}))
        replies.append(await web.client.post("/api/runs"))
        async with web.client.stream("GET", "/api/questions/stream") as stream:
            replies.append(stream)
        for reply in replies:
            assert reply.headers["content-security-policy"] == POLICY
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"
        assert [reply.headers["cache-control"] for reply in replies[:2]] == ["no-cache", "no-store"]
        for reply in replies[2:]:
            assert reply.headers["cache-control"] == "no-store"
        assert [reply.status_code for reply in replies[3:]] == [404, 404, 403, 405, 200]


async def test_every_refusal_is_a_json_message() -> None:
    async with serve_home() as web:
        refused: list[tuple[str, str, Any, int]] = [
            ("GET", "/api/none", None, 404),
            ("POST", "/api/runs", {}, 405),
            ("GET", "/api/runs?limit=many", None, 400),
            ("GET", "/api/runs/none/frames", None, 404),
            ("POST", "/api/runs/none/send", {"to": "lead", "text": "x"}, 404),
        ]
        for method, path, body, status in refused:
            reply = await web.client.request(method, path, json=body)
            assert reply.status_code == status, reply.text
            assert reply.json()["error"]


@pytest.mark.spec("USR-29")
@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc", "%2e%2e", ".hidden", "a%00b", "-x", "a%2f..%2fb", "x" * 300]
)
async def test_no_path_of_a_client_reaches_the_file_system(name: str) -> None:
    async with serve_home() as web:
        for path in (f"/runs/{name}/frames", f"/runs/{name}/agents/lead/transcript", f"/runs/{name}/replay"):
            reply = await web.client.get(f"/api{path}")
            assert reply.status_code in (400, 404)
            assert reply.json()["error"]


async def test_a_public_server_accepts_its_ip_addresses_and_its_host_name() -> None:
    async with serve_home(host="0.0.0.0") as web:
        port = web.address.partition("/?")[0].rpartition(":")[2]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=BEARER) as client:
            for host, status in ((socket.gethostname(), 200), ("192.0.2.1", 200), ("evil.example", 403)):
                reply = await client.get("/api/runs", headers={"Host": f"{host}:{port}"})
                assert reply.status_code == status


async def test_a_login_ticket_works_once() -> None:
    """The ticket is a browser argument, which other users of the machine may see."""
    async with serve_home(ticket="for-one-browser") as web, httpx.AsyncClient() as browser:
        door = {"ticket": "for-one-browser"}
        assert (await browser.get(f"{web.base}/api/runs", params=door)).status_code == 403
        assert (await browser.get(f"{web.base}/", params={"ticket": ""})).status_code == 403
        reply = await browser.get(f"{web.base}/", params=door)
        assert (reply.status_code, reply.headers["location"]) == (303, "/")
        assert (await browser.get(f"{web.base}/api/runs")).status_code == 200
        async with httpx.AsyncClient() as late:
            assert (await late.get(f"{web.base}/", params=door)).status_code == 403


@pytest.mark.parametrize("token", ["a&b=c#d+e%41f/g?h", 'semi;colon "quoted" \\ word'])
async def test_any_text_may_be_the_token(token: str) -> None:
    async with serve_home(token=token) as web, httpx.AsyncClient(follow_redirects=True) as browser:
        assert (await browser.get(web.address)).status_code == 200
        assert (await browser.get(f"{web.base}/api/runs")).status_code == 200


async def test_invalid_numbers_are_refused() -> None:
    async with serve_home() as web:
        for since in ("x", "-1", "9" * 5_000):
            reply = await web.client.get("/api/runs/none/frames", params={"since": since})
            assert reply.status_code == 400
