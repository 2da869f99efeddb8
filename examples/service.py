"""Runs a service that answers each line from a client and streams the answer as the model writes it.

Try it: python examples/service.py 8765, and in another terminal: nc 127.0.0.1 8765
"""

import asyncio
import sys

import shoal


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async with shoal.open() as session:
        async for line in reader:
            async for piece in session.run(line.decode()).text():
                writer.write(piece.encode())
                await writer.drain()
            writer.write(b"\n")
    writer.close()


async def main(port: int) -> None:
    async with await asyncio.start_server(serve_client, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
