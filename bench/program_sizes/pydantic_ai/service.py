"""Answers each line of a client and streams the answer."""

import asyncio
import sys

from pydantic_ai import Agent

agent = Agent("anthropic:claude-sonnet-4-5")


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    history = []
    async for line in reader:
        async with agent.run_stream(line.decode(), message_history=history) as result:
            async for piece in result.stream_text(delta=True):
                writer.write(piece.encode())
                await writer.drain()
        history = result.all_messages()
        writer.write(b"\n")
    writer.close()


async def main(port: int) -> None:
    async with await asyncio.start_server(serve_client, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
