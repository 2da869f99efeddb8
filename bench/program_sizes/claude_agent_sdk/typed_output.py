"""An answer as Python objects."""

import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from pydantic import BaseModel


class Finding(BaseModel):
    file: str
    line: int
    why: str


class Findings(BaseModel):
    findings: list[Finding]


async def main() -> None:
    schema = {"type": "json_schema", "schema": Findings.model_json_schema()}
    options = ClaudeAgentOptions(output_format=schema)
    async for message in query(prompt="Review the Python files here.", options=options):
        if isinstance(message, ResultMessage):
            for finding in Findings.model_validate(message.structured_output).findings:
                print(f"{finding.file}:{finding.line}: {finding.why}")
            print(f"{message.num_turns} turns")


asyncio.run(main())
