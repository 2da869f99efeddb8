"""A team that repairs a parser, at one moment of its work."""

from __future__ import annotations

from run_view_scenario import RunViewScenario
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule
from shoal.core.permissions.questions import (
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
)

SESSION_RULE = AddPermissionRulesSuggestion(
    rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="make test:*"),)
)
SAVED_RULE = AddPermissionRulesSuggestion(rules=SESSION_RULE.rules, destination="localSettings")
PERMISSION_QUESTION = PermissionQuestion(
    id="q-run",
    agent=AgentId("bob"),
    tool_use_id="t-1",
    tool="Bash",
    input={"command": "rm -rf build && make test", "description": "Run the tests from scratch"},
    reason="rm is not on the list of what may run",
    rule="Bash(make test:*)",
    suggestions=(SESSION_RULE, SAVED_RULE),
)
PLAN_PATH = "/project/.shoal/plans/ada.md"
FIRST_PLAN_QUESTION = PlanApprovalQuestion(
    id="q-plan-1",
    agent=AgentId("ada"),
    path=PLAN_PATH,
    digest="1",
    plan="# Keep comments\n\n1. Change the lexer\n2. Change the printer\n\nNothing else is touched.",
)
PLAN_QUESTION = PlanApprovalQuestion(
    id="q-plan-2",
    agent=AgentId("ada"),
    path=PLAN_PATH,
    digest="2",
    plan="# Keep comments\n\n1. Change the lexer so that `skip_trivia()` keeps what it skips\n"
    "2. Test it **in odd places**\n3. Change the printer\n\n"
    "```python\nprint(tree.comments)\n```\n\nNothing else is touched.",
    wishes=("Bash(make test)",),
)
CHOICE_QUESTION = ChoiceQuestion(
    id="q-choose",
    agent=AgentId("eve"),
    choices=(
        MultipleChoice(
            question="Which parser is it to be?",
            header="Parser",
            options=(
                ChoiceOption(label="Hand-written", description="fast, long"),
                ChoiceOption(label="Generated", description="short, slow"),
            ),
        ),
        MultipleChoice(
            question="Which files may change?",
            header="Files",
            multi_select=True,
            options=(ChoiceOption(label="src"), ChoiceOption(label="tests"), ChoiceOption(label="docs")),
        ),
    ),
)


async def build_parser_scenario() -> RunViewScenario:
    scenario = RunViewScenario()
    scenario.start_turn()
    scenario.change_task("1", "Find out where the parser drops comments", "completed", owner="ada")
    scenario.start_agent("ada", "Read the parser", color="blue", team="crew")
    scenario.start_agent("bob", "Write the missing tests", color="green", team="crew")
    scenario.start_agent("eve", "Review what the others did", color="purple", team="crew")
    scenario.change_task("2", "Keep comments in the tree", "in_progress", owner="ada", blocked_by=("1",))
    scenario.change_task("3", "Test comments in all the odd places", "in_progress", owner="bob")
    scenario.change_task("4", "Review the change", owner="eve", blocked_by=("2", "3"))
    scenario.change_task("5", "Write the note for the changelog", blocked_by=("4",))
    scenario.change_task("6", "Measure how long parsing takes now")
    scenario.settle_request("ada", 48_210, 0.0712)
    scenario.settle_request("bob", 12_400, 0.0201)
    scenario.settle_request(LEAD_ID, 90_123, 1.2345)
    scenario.start_agent(
        "finder", "Find uses of strip_comments", kind="Explore", parent="ada", depth=2, color="orange"
    )
    scenario.start_agent("old", "Look at the build", color="red")
    scenario.end_agent("old")
    scenario.start_agent("older", "Try the other parser")
    scenario.end_agent("older", "failed", "the model refused three times: overloaded")
    scenario.post_mail("team-lead", "ada", "Please begin with the lexer, then tell bob what you found.")
    await scenario.advance_clock(12)
    scenario.post_mail(
        "ada", "bob", "The lexer drops them in skip_trivia(); I keep them in the tree from now on."
    )
    await scenario.advance_clock(22)
    scenario.post_mail(
        "bob",
        "ada",
        "Then I test comments at the end of a file. What if it ends without a newline?",
        taken=False,
    )
    scenario.post_mail("eve", "team-lead", "(is idle)", kind="idle_notification", taken=False)
    scenario.start_tool("ada", "Edit", "src/parser/lexer.py")
    scenario.start_tool("finder", "Grep", "strip_comments")
    scenario.settle_request("finder", 3_210, None)
    await scenario.advance_clock(3)
    scenario.start_tool(LEAD_ID, "Bash", "git status")
    scenario.ask_question(PERMISSION_QUESTION)
    await scenario.advance_clock(2)
    return scenario


async def build_question_scenario() -> RunViewScenario:
    """Build a run with all kinds of questions, and a plan that is presented again."""
    scenario = await build_parser_scenario()
    scenario.ask_question(FIRST_PLAN_QUESTION)
    scenario.answer_question(FIRST_PLAN_QUESTION, DenyAnswer(reason="Say how it is tested."))
    scenario.ask_question(PLAN_QUESTION)
    scenario.ask_question(CHOICE_QUESTION)
    return scenario
