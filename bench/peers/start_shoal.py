"""One question by one agent of Shoal, as its documentation begins; all is stored on disk, as by default."""

import asyncio

import shoal


async def main() -> None:
    async with shoal.open(cwd=".", model="openai:mock") as session:
        async for event in session.run("hi"):
            if isinstance(event, shoal.events.RunFinished):
                print(event.text)


asyncio.run(main())
