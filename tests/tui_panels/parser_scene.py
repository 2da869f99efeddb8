"""A team that repairs a parser, at one moment of its work."""

from __future__ import annotations

from shoal.core.ids import LEAD, AgentId
from shoal.core.permissions import AddRules, RuleValue
from shoal.core.questions import ApprovePlan, Choice, Choose, Denied, MayRun, Option
from tui_scene import Scene

RULE = AddRules(rules=(RuleValue(tool_name="Bash", rule_content="make test:*"),))
KEPT = AddRules(rules=RULE.rules, destination="localSettings")
MAY_RUN = MayRun(
    id="q-run",
    agent=AgentId("bob"),
    tool_use_id="t-1",
    tool="Bash",
    input={"command": "rm -rf build && make test", "description": "Run the tests from scratch"},
    reason="rm is not on the list of what may run",
    rule="Bash(make test:*)",
    suggestions=(RULE, KEPT),
)
PATH = "/project/.shoal/plans/ada.md"
FIRST_PLAN = ApprovePlan(
    id="q-plan-1",
    agent=AgentId("ada"),
    path=PATH,
    digest="1",
    plan="# Keep comments\n\n1. Change the lexer\n2. Change the printer\n\nNothing else is touched.",
)
PLAN = ApprovePlan(
    id="q-plan-2",
    agent=AgentId("ada"),
    path=PATH,
    digest="2",
    plan="# Keep comments\n\n1. Change the lexer so that `skip_trivia()` keeps what it skips\n"
    "2. Test it **in odd places**\n3. Change the printer\n\n"
    "```python\nprint(tree.comments)\n```\n\nNothing else is touched.",
    wishes=("Bash(make test)",),
)
CHOOSE = Choose(
    id="q-choose",
    agent=AgentId("eve"),
    choices=(
        Choice(
            question="Which parser is it to be?",
            header="Parser",
            options=(
                Option(label="Hand-written", description="fast, long"),
                Option(label="Generated", description="short, slow"),
            ),
        ),
        Choice(
            question="Which files may change?",
            header="Files",
            multi_select=True,
            options=(Option(label="src"), Option(label="tests"), Option(label="docs")),
        ),
    ),
)


async def parser_scene() -> Scene:
    scene = Scene()
    scene.turn()
    scene.task("1", "Find out where the parser drops comments", "completed", owner="ada")
    scene.starts("ada", "Read the parser", color="blue", team="crew")
    scene.starts("bob", "Write the missing tests", color="green", team="crew")
    scene.starts("eve", "Review what the others did", color="purple", team="crew")
    scene.task("2", "Keep comments in the tree", "in_progress", owner="ada", blocked_by=("1",))
    scene.task("3", "Test comments in all the odd places", "in_progress", owner="bob")
    scene.task("4", "Review the change", owner="eve", blocked_by=("2", "3"))
    scene.task("5", "Write the note for the changelog", blocked_by=("4",))
    scene.task("6", "Measure how long parsing takes now")
    scene.spends("ada", 48_210, 0.0712)
    scene.spends("bob", 12_400, 0.0201)
    scene.spends(LEAD, 90_123, 1.2345)
    scene.starts(
        "finder", "Find uses of strip_comments", kind="Explore", parent="ada", depth=2, color="orange"
    )
    scene.starts("old", "Look at the build", color="red")
    scene.ends("old")
    scene.starts("older", "Try the other parser")
    scene.ends("older", "failed", "the model refused three times: overloaded")
    scene.letter("team-lead", "ada", "Please begin with the lexer, then tell bob what you found.")
    await scene.passes(12)
    scene.letter("ada", "bob", "The lexer drops them in skip_trivia(); I keep them in the tree from now on.")
    await scene.passes(22)
    scene.letter(
        "bob",
        "ada",
        "Then I test comments at the end of a file. What if it ends without a newline?",
        taken=False,
    )
    scene.letter("eve", "team-lead", "(is idle)", kind="idle_notification", taken=False)
    scene.runs("ada", "Edit", "src/parser/lexer.py")
    scene.runs("finder", "Grep", "strip_comments")
    scene.spends("finder", 3_210, None)
    await scene.passes(3)
    scene.runs(LEAD, "Bash", "git status")
    scene.asks(MAY_RUN)
    await scene.passes(2)
    return scene


async def asking_scene() -> Scene:
    """Build a run with all kinds of questions, and a plan that is presented again."""
    scene = await parser_scene()
    scene.asks(FIRST_PLAN)
    scene.answers(FIRST_PLAN, Denied(reason="Say how it is tested."))
    scene.asks(PLAN)
    scene.asks(CHOOSE)
    return scene
