"""An answer as Python objects. The agent has no file tools; they would be more lines."""

from dataclasses import dataclass

from agents import Agent, Runner


@dataclass
class Finding:
    file: str
    line: int
    why: str


agent = Agent(name="reviewer", output_type=list[Finding])
result = Runner.run_sync(agent, "Review the Python files here.")
for finding in result.final_output:
    print(f"{finding.file}:{finding.line}: {finding.why}")
print(f"{len(result.raw_responses)} requests")
