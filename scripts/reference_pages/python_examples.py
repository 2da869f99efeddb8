"""Examples on docs/reference/python.md, by name. The tests compile them."""

from __future__ import annotations

EXAMPLES = {
    "run": """
async def summarize(project: str) -> str:
    result = await shoal.run("Summarize README.md", cwd=project, max_budget_usd=0.50)
    return result.text
""",
    "run_sync": """
result = shoal.run_sync("List the open questions in NOTES.md", output=list[str])
print(result.output, result.cost_usd)
""",
    "open": """
async def main() -> None:
    async with shoal.open(cwd=".", mode="acceptEdits", max_budget_usd=2) as session:
        async for text in session.run("Fix the failing test").text():
            print(text, end="")
        result = await session.run("Which files did you change?")
        print(result.text)
""",
    "Agent": """
reviewer = shoal.Agent(
    "reviewer",
    description="Reviews one file.",
    prompt="You review one file and list its bugs.",
    tools=["Read", "Grep"],
    model="sonnet",
    output=list[str],
    budget_usd=0.50,
)
""",
    "AgentHandle": """
async def review(session: shoal.Session) -> None:
    handle = await session.spawn(reviewer, "Review src/fees.py")
    await handle.send("Look at the rounding first.")
    result = await handle
    print(result.output)
""",
    "Team": """
async def repair() -> None:
    async with shoal.Team("repair", members=[ana, ben], backend="process", cwd=".") as team:
        fix = await team.add_task("Fix fees", owner="ana", accept="pytest -q tests/test_fees.py")
        await team.add_task("Review the fix", owner="ben", blocked_by=[fix])
        report = await team.finished()
        print(report.ok, report.detail)


async def continue_repair() -> None:
    async with shoal.Team.resume("repair") as team:
        await team.finished()
""",
    "workflow": """
@shoal.workflow
async def review(flow: shoal.Workflow, files: list[str]) -> str:
    notes = await flow.map(reviewer, [f"Review {file}" for file in files], at_once=8)
    return await flow.agent(writer, f"Summarize: {notes}")


async def main() -> None:
    async with shoal.open(cwd=".") as session:
        print(await review.run(session, ["a.py", "b.py"]))
""",
    "Budget": """
budget = shoal.Budget(usd=5)


async def work(cwd: str) -> None:
    await shoal.run("Update the changelog", cwd=cwd, budget=budget)
    print(budget.spent_usd)
""",
    "tool": """
@shoal.tool(reads_only=True)
def find_price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    \"\"\"Find the price of an item.\"\"\"
    return PRICES[item, currency]


result = shoal.run_sync("What does tea cost?", tools=[find_price], allowed_tools=[find_price])
""",
    "Question": """
def answer(question: shoal.Question) -> shoal.Answer | None:
    match question:
        case shoal.PermissionQuestion(tool="Bash"):
            return question.deny("No commands, please.")
        case shoal.PermissionQuestion():
            return question.allow(remember="session")
        case shoal.PlanApprovalQuestion():
            return question.approve(mode="acceptEdits")
    return None


shoal.run_sync("Fix the bug", on_question=answer)
""",
    "Hooks": """
def keep_files(event: shoal.PreToolUseInput) -> shoal.PreToolUseHookOutput | None:
    if "rm " in event["tool_input"].get("command", ""):
        return {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "No rm."}}
    return None


shoal.run_sync("Clean up", hooks={"PreToolUse": [("Bash", keep_files)]})
""",
    "Model": """
class Echo:
    card = shoal.ModelCard(id="echo", provider="own")

    async def generate_reply(
        self, request: shoal.ModelRequest, on_delta: shoal.DeltaListener
    ) -> shoal.ModelReply:
        await on_delta(shoal.ModelAttemptStartedDelta())
        text = request.messages[-1].text
        return shoal.ModelReply(
            message=shoal.Message(role="assistant", content=(shoal.TextBlock(text=text),)),
            usage=shoal.Usage(),
            stop_reason="end_turn",
            model="echo",
        )

    async def aclose(self) -> None: ...
""",
    "ScriptedModel": """
def test_the_program_says_hello() -> None:
    result = shoal.run_sync("Say hello", model=shoal.ScriptedModel(["Hello."]))
    assert result.text == "Hello."
""",
    "RunFailed": """
try:
    result = shoal.run_sync("Fix the bug", max_turns=5)
except shoal.RunFailed as failure:
    print(failure.result.reason, failure.result.detail)
""",
}
