"""Answers each line of a client and streams the answer."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, StreamEvent


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async with ClaudeSDKClient(ClaudeAgentOptions(include_partial_messages=True)) as client:
        async for line in reader:
            await client.query(line.decode())
            async for message in client.receive_response():
                if isinstance(message, StreamEvent):
                    delta = message.event.get("delta", {})
                    if delta.get("type") == "text_delta":
                        writer.write(delta["text"].encode())
                        await writer.drain()
            writer.write(b"\n")
    writer.close()


async def main(port: int) -> None:
    async with await asyncio.start_server(serve_client, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
