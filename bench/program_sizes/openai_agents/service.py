"""Answers each line of a client and streams the answer."""

import asyncio
import sys

from agents import Agent, Runner, SQLiteSession
from openai.types.responses import ResponseTextDeltaEvent

agent = Agent(name="assistant")


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    session = SQLiteSession(str(id(writer)))
    async for line in reader:
        result = Runner.run_streamed(agent, line.decode(), session=session)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                writer.write(event.data.delta.encode())
                await writer.drain()
        writer.write(b"\n")
    writer.close()


async def main(port: int) -> None:
    async with await asyncio.start_server(serve_client, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
