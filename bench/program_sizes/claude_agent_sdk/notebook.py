"""Cells of a notebook; the function stands for their common scope."""

from claude_agent_sdk import ClaudeSDKClient, ResultMessage


async def run_cells():
    client = ClaudeSDKClient()
    await client.connect()
    await client.query("What is in this directory?")
    [message.result async for message in client.receive_response() if isinstance(message, ResultMessage)][0]
    await client.query("And which file is the largest?")
    [message.result async for message in client.receive_response() if isinstance(message, ResultMessage)][0]
    await client.disconnect()
