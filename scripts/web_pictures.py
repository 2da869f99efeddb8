"""Takes the pictures of docs/web.md from real runs with a scripted model, in a real browser.

Usage: python scripts/web_pictures.py

It needs chromium and the development tools, and about a minute.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
DESKTOP_SIZE = {"width": 1200, "height": 720}
PHONE_SIZE = {"width": 390, "height": 760}
MAX_PICTURE_BYTES = 200_000
TOKEN = secrets.token_urlsafe(16)
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_HEAD = "# Publish the harbour\n\n1. Run every test.\n"
PLANS = (
    f"{_HEAD}2. Tag the release.\n3. Push to the public branch.\n",
    f"{_HEAD}2. Say in the changelog what is new.\n3. Tag the release.\n4. Push to the public branch.\n",
)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="shoal-pictures-") as directory:
        home = Path(directory) / "home"
        os.environ.update(SHOAL_HOME=str(home), HOME=directory)
        await (await _start_demo(home, "agents", "--fast")).wait()
        async with _serve_web(home) as base, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS)
            )
            async with _open_asking_sessions(Path(directory)) as asking_sessions:
                team = await _start_demo(home, "team")
                await _take_team_pictures(browser, base)
                await _take_question_pictures(browser, base, asking_sessions)
                await team.wait()
            await _take_ended_run_pictures(browser, base)
            await browser.close()


async def _start_demo(home: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "demo", *arguments, "--home", str(home)),
        stdout=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@asynccontextmanager
async def _serve_web(home: Path) -> AsyncIterator[str]:
    from shoal.surfaces.web.web_server import WebServerAddress, serve_web_view

    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()
    address_config = WebServerAddress(host="127.0.0.1", port=0, token=TOKEN)
    server_task = asyncio.create_task(
        serve_web_view(home, address_config, on_ready=address.set_result, ended=ended)
    )
    try:
        yield (await address).partition("/?")[0]
    finally:
        ended.set()
        await server_task


@asynccontextmanager
async def _open_asking_sessions(directory: Path) -> AsyncIterator[Sequence[str]]:
    """Open two live sessions that wait for a person: for a permission, and for a second plan."""
    import shoal
    from shoal.core.conversation.messages import ToolUseBlock
    from shoal.models.scripted_model import ScriptedModel

    push_call = ToolUseBlock(
        id="push", name="Bash", input={"command": "git push origin main", "timeout": 60_000}
    )
    plans = [
        ToolUseBlock(id=f"plan-{number}", name="ExitPlanMode", input={"plan": plan})
        for number, plan in enumerate(PLANS)
    ]
    scripts = (("Publish the repairs.", [push_call], "default"), ("Plan the release.", plans, "plan"))
    sessions, turns = [], []
    for number, (_, calls, mode) in enumerate(scripts):
        cwd = directory / ("harbour" if number == 0 else "release")
        cwd.mkdir()
        model = ScriptedModel(_script_lines([*calls, "Done."]))
        sessions.append(shoal.open(cwd=cwd, model=model, mode=mode, attended=True))
    async with sessions[0], sessions[1]:
        for session, (prompt, _, _) in zip(sessions, scripts, strict=True):
            turns.append(asyncio.create_task(_drain_turn(session.run(prompt))))
        yield [session.id for session in sessions]
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)


def _script_lines(lines: Sequence[Any]) -> Any:
    def choose_reply(request: Any) -> Any:
        reply_count = sum(message.role == "assistant" for message in request.messages)
        return lines[min(reply_count, len(lines) - 1)]

    return choose_reply


async def _drain_turn(turn: Any) -> None:
    async for _ in turn:
        pass


@asynccontextmanager
async def _open_page(
    browser: Browser, base: str, size: Any = DESKTOP_SIZE, **more: Any
) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport=size, locale="en-GB", **more)
    context.set_default_timeout(40_000)
    page = await context.new_page()
    await page.goto(f"{base}/?token={TOKEN}")
    yield page
    await context.close()


def _open_phone_page(browser: Browser, base: str) -> Any:
    return _open_page(browser, base, PHONE_SIZE, has_touch=True, is_mobile=True, device_scale_factor=1.5)


async def _take_picture(page: Page, name: str, selector: str | None = None) -> None:
    if selector is not None:
        await page.evaluate("place => { location.hash = place }", selector)
        await expect(page.locator(".page")).to_be_visible()
        await page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    path = PICTURES / f"web-{name}.png"
    await page.screenshot(path=path, animations="disabled")
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}  {size // 1000} kB")
    if size > MAX_PICTURE_BYTES:
        raise SystemExit(f"{path} is larger than {MAX_PICTURE_BYTES:,} bytes.")


async def _fetch_runs(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await page.evaluate("fetch('/api/runs').then(r => r.text())"))
    return found


async def _take_team_pictures(browser: Browser, base: str) -> None:
    async with _open_page(browser, base) as page, _open_phone_page(browser, base) as phone:
        await expect(page.get_by_text("The tests of this project fail.").first).to_be_visible(timeout=40_000)
        run = next(row["session"] for row in await _fetch_runs(page) if row["prompt"].startswith("The tests"))
        await page.evaluate("run => { location.hash = `#/run/${run}/mail` }", run)
        await expect(page.get_by_text("length of a ship").first).to_be_visible(timeout=40_000)
        await _take_picture(page, "team", f"#/run/{run}/team")
        await _take_picture(page, "board", f"#/run/{run}/board")
        await _take_picture(phone, "phone-team", f"#/run/{run}/team")
        await page.evaluate("run => { location.hash = `#/run/${run}/mail` }", run)
        await expect(page.get_by_text("presents a plan").first).to_be_visible(timeout=40_000)
        await page.get_by_text("presents a plan").first.click()
        await _take_picture(page, "mail")
        await page.evaluate("run => { location.hash = `#/run/${run}/board` }", run)
        await page.get_by_role("button", name="Graph").click()
        await page.locator("[data-task='4']").click()
        await _take_picture(page, "graph")
        await page.get_by_role("button", name="Columns").click()
        await page.evaluate("run => { location.hash = `#/run/${run}/agent/ana@harbour` }", run)
        await expect(page.locator(".call").first).to_be_visible()
        await _take_picture(page, "agent")


async def _take_question_pictures(browser: Browser, base: str, asking_sessions: Sequence[str]) -> None:
    async with _open_page(browser, base) as page, _open_phone_page(browser, base) as phone:
        await page.evaluate("location.hash = '#/questions'")
        plan = page.get_by_role("article").filter(has_text="presents a plan")
        await plan.get_by_role("button", name="Send back").click()
        await plan.get_by_role("textbox").fill("Say in the changelog what is different.")
        await plan.locator("form button[type=submit]").last.click()
        await expect(plan.get_by_text("changelog").first).to_be_visible()
        await _take_picture(page, "questions")
        await _take_picture(phone, "phone-questions", f"#/run/{asking_sessions[0]}/questions")


async def _take_ended_run_pictures(browser: Browser, base: str) -> None:
    async with _open_page(browser, base) as page, _open_phone_page(browser, base) as phone:
        run = next(row["session"] for row in await _fetch_runs(page) if row["prompt"].startswith("The tests"))
        await _take_picture(page, "runs", "#/runs")
        await _take_picture(page, "cost", f"#/run/{run}/cost")
        await page.evaluate("run => { location.hash = `#/run/${run}/replay/board` }", run)
        moment = page.get_by_label("Moment of the run")
        await moment.fill(str(int(int(await moment.get_attribute("max") or 2) * 0.55)))
        await _take_picture(page, "replay")
        await _take_picture(phone, "phone-mail", f"#/run/{run}/mail")


if __name__ == "__main__":
    asyncio.run(main())
