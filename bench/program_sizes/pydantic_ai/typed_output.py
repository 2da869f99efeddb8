"""An answer as Python objects. The agent has no file tools; they would be more lines."""

from dataclasses import dataclass

from pydantic_ai import Agent


@dataclass
class Finding:
    file: str
    line: int
    why: str


agent = Agent("anthropic:claude-sonnet-4-5", output_type=list[Finding])
result = agent.run_sync("Review the Python files here.")
for finding in result.output:
    print(f"{finding.file}:{finding.line}: {finding.why}")
print(f"{result.usage().requests} requests")
