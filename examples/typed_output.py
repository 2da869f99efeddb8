"""Gets an answer as Python objects. Try it: python examples/typed_output.py"""

from dataclasses import dataclass

import shoal


@dataclass
class Finding:
    file: str
    line: int
    why: str


result = shoal.run_sync("Review the Python files here.", output=list[Finding])
for finding in result.output:
    print(f"{finding.file}:{finding.line}: {finding.why}")
print(f"{result.requests} requests")
