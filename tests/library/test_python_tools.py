"""Decorated tools: callable as before, as methods, with pydantic models and dataclasses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike
from shoal.testing import make_tool_call


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(ge=1)


@dataclass
class Price:
    amount: float
    currency: str


class Shop:
    def __init__(self, price: float) -> None:
        self._price = price

    @shoal.tool(reads_only=True)
    def quote(self, order: Order) -> Price:
        """Quote a price for an order."""
        return Price(amount=self._price * order.count, currency="EUR")

    @shoal.tool
    async def place(self, order: Order, price: Price) -> Order:
        """Place an order."""
        return Order(item=f"{order.item} at {price.amount}", count=order.count)


@shoal.tool(reads_only=True)
def double(number: int) -> int:
    """Double a number."""
    return number * 2


@pytest.mark.spec("API-12")
async def test_a_decorated_function_and_a_decorated_method_stay_callable() -> None:
    assert double(4) == 8
    shop = Shop(price=2.5)
    order = Order(item="tea", count=2)
    assert shop.quote(order) == Price(amount=5.0, currency="EUR")
    assert (await shop.place(order, Price(amount=1, currency="EUR"))).item == "tea at 1"
    assert Shop.quote(shop, order) == Price(amount=5.0, currency="EUR")
    assert double.__doc__ == "Double a number."


async def call_and_collect(tmp_path: Path, tools: list[Any], *calls: Any) -> list[Any]:
    """Have a model make the calls; return the results."""
    remaining = list(calls)

    def reply(_: ModelRequest) -> ReplyLike:
        return [remaining.pop(0)] if remaining else "done"

    outputs: list[Any] = []

    def on_event(event: shoal.Event) -> None:
        if isinstance(event, shoal.events.ToolOutputReturned):
            outputs.append(event)

    names = [tool.schema.name for tool in tools]
    model = shoal.ScriptedModel(reply)
    await shoal.run("go", cwd=tmp_path, model=model, tools=tools, allowed_tools=names, on_event=on_event)
    return outputs


@pytest.mark.spec("API-12")
async def test_tools_take_and_return_pydantic_models_and_dataclasses(tmp_path: Path) -> None:
    cheap, dear = Shop(price=1), Shop(price=100)
    outputs = await call_and_collect(
        tmp_path,
        [cheap.quote, cheap.place],
        make_tool_call("quote", order={"item": "tea", "count": 3}),
        make_tool_call("place", order={"item": "tea", "count": 3}, price={"amount": 3, "currency": "EUR"}),
        make_tool_call("quote", order={"item": "tea", "count": 0}),
    )
    assert outputs[0].data == {"amount": 3.0, "currency": "EUR"}
    assert outputs[1].data == {"item": "tea at 3.0", "count": 3}
    assert outputs[2].result.is_error
    assert "greater than or equal to 1" in str(outputs[2].result.content)
    (other,) = await call_and_collect(
        tmp_path, [dear.quote], make_tool_call("quote", order={"item": "tea", "count": 1})
    )
    assert other.data["amount"] == 100


@pytest.mark.spec("API-12")
async def test_the_model_sees_the_fields_of_a_pydantic_model() -> None:
    properties = Shop(price=1).quote.schema.input_schema["properties"]
    assert list(properties) == ["order"]
    assert properties["order"]["properties"]["count"]["minimum"] == 1
    assert "$ref" not in str(properties)


@pytest.mark.spec("API-12")
async def test_the_tool_of_a_class_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Shop.quote is a method. Take the tool from an instance"):
        shoal.Agent("seller", prompt="Sell.", tools=[Shop.quote])
    with pytest.raises(TypeError, match="is a method"):
        await shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([]), tools=[Shop.quote]).__aenter__()


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Target:
    path: Path


@shoal.tool(reads_only=True)
def describe(
    *,
    path: Path,
    color: Color,
    size: Literal["s", "m"],
    day: date,
    id: UUID,  # noqa: A002 - a usual name
    price: Decimal,
    count: Annotated[int, pydantic.Field(ge=1, description="how many")],
    target: Annotated[Target | None, "where to"] = None,
    output: Annotated[Path, "a file"] = Path("out.txt"),
    order: Annotated[Order, "the order"] = Order(item="tea", count=1),  # noqa: B008 - never changed
) -> list[str]:
    """Describe arguments."""
    return [repr(each) for each in (path, color, size, day, id, price, count, target, output, order)]


GOOD: dict[str, Any] = {
    "path": "src/a.py", "color": "red", "size": "m", "day": "2030-01-02", "price": "1.50", "count": 2,
    "id": "00000000-0000-0000-0000-000000000001",
}  # fmt: skip


@pytest.mark.spec("API-12")
def test_common_annotations_become_json_schema() -> None:
    properties = describe.schema.input_schema["properties"]
    assert properties["path"] == {"type": "string", "format": "path"}
    assert properties["color"]["enum"] == ["blue", "red"]
    assert properties["count"] == {"type": "integer", "minimum": 1, "description": "how many"}
    assert properties["target"]["description"] == "where to"
    assert properties["output"]["description"] == "a file"
    assert properties["order"]["description"] == "the order"
    assert describe.schema.input_schema["required"] == [*list(GOOD)[:4], "id", "price", "count"]


@pytest.mark.spec("API-12")
async def test_arguments_with_common_annotations_are_converted(tmp_path: Path) -> None:
    output = await run_tool(tmp_path, describe, **GOOD, target={"path": "b"}, output="c")
    assert msgspec.json.decode(output) == [
        "PosixPath('src/a.py')", "<Color.RED: 'red'>", "'m'", "datetime.date(2030, 1, 2)",
        "UUID('00000000-0000-0000-0000-000000000001')", "Decimal('1.50')", "2",
        "Target(path=PosixPath('b'))", "PosixPath('c')", "Order(item='tea', count=1)",
    ]  # fmt: skip
    assert "'out.txt'" in await run_tool(tmp_path, describe, **GOOD)


@pytest.mark.spec("API-12")
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"path": 3}, "`path`: expected a string, got 3"),
        ({"count": 0}, "greater than or equal to 1"),
        ({"color": "green"}, '`color`: expected one of "blue", "red"'),
    ],
)
async def test_wrong_arguments_with_common_annotations_are_refused(
    tmp_path: Path, wrong: dict[str, Any], problem: str
) -> None:
    assert problem in await run_tool(tmp_path, describe, **{**GOOD, **wrong})


async def run_tool(tmp_path: Path, tool: shoal.PythonTool[..., Any], **arguments: Any) -> str:
    """Return the text that the model reads after it has called the tool."""
    seen: list[str] = []

    def reply(request: ModelRequest) -> ReplyLike:
        if len(request.messages) == 1:
            return [make_tool_call(tool.schema.name, **arguments)]
        (block,) = request.messages[-1].content
        assert isinstance(block, shoal.ToolResultBlock)
        seen.append(str(block.content))
        return "done"

    await shoal.run("go", cwd=tmp_path, model=shoal.ScriptedModel(reply), tools=[tool], allowed_tools=[tool])
    return seen[0]


def take_any_number(*names: str) -> str:
    return " ".join(names)


def take_keywords(**names: str) -> str:
    return " ".join(names)


def take_by_position(name: str, /) -> str:
    return name


def summarize(context: str) -> str:
    return context


def take_field(count: int = pydantic.Field(3, ge=1)) -> str:
    return str(count)


def take_function(on_end: Callable[[], None]) -> str:
    return str(on_end)


def take_complex(number: complex) -> str:
    return str(number)


@pytest.mark.spec("API-12")
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (take_any_number, r"take_any_number cannot take the parameter `\*names: .*Name each argument"),
        (take_keywords, r"take_keywords cannot take the parameter `\*\*names"),
        (take_by_position, r"take_by_position cannot take the positional-only parameter `name"),
        (
            summarize,
            r"summarize: the parameter `context: 'str'` would get the call's ToolContext.* Rename it",
        ),
        (take_field, r"the default of count is a pydantic Field. Put it into the annotation"),
        (take_function, r"take_function: the parameter on_end cannot be described to a model: .*Callable"),
        (
            take_complex,
            r"take_complex: the parameter number cannot .*'complex'> is not supported",
        ),
    ],
)
def test_a_parameter_that_a_model_cannot_pass_is_refused_by_the_decorator(
    function: Callable[..., Any], problem: str
) -> None:
    with pytest.raises(TypeError, match=problem) as caught:
        shoal.tool(function)
    assert "schema_hook" not in str(caught.value)


class Stall:
    def list_prices(cls, count: int) -> str:  # noqa: N805 - as under @classmethod
        return str(count)

    @staticmethod
    @shoal.tool
    def double(count: int) -> int:
        return 2 * count


def count_up(end: int) -> Iterator[int]:
    yield from range(end)


async def count_up_later(end: int) -> AsyncIterator[int]:
    yield end


def classify(cls: str) -> str:
    return cls


@pytest.mark.spec("API-12")
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (Stall.list_prices, "Stall.list_prices is a class method. Make it a method with self"),
        (count_up, "count_up is a generator, .* Return a list"),
        (count_up_later, "count_up_later is a generator"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_by_the_decorator(
    function: Callable[..., Any], problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        shoal.tool(function)


@pytest.mark.spec("API-12")
def test_a_static_method_and_an_annotated_parameter_named_cls_are_accepted() -> None:
    assert [*Stall.double.schema.input_schema["properties"]] == ["count"]
    assert [*shoal.tool(classify).schema.input_schema["properties"]] == ["cls"]


@pytest.mark.spec("API-12")
async def test_two_tools_with_one_name_are_refused(tmp_path: Path) -> None:
    tools = [Shop(price=1).quote, Shop(price=2).quote]
    with pytest.raises(shoal.SettingsError, match=r"tools: two tools have the name 'quote'. Rename one"):
        shoal.Agent("seller", prompt="Sell.", tools=tools)
    with pytest.raises(shoal.SettingsError, match=r"shoal.open: tools: two tools have the name 'quote'"):
        async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([]), tools=tools):
            pytest.fail("The session opened.")


def test_a_tool_can_be_made_while_pydantic_is_not_fully_imported() -> None:
    program = "import pydantic, shoal; print(shoal.tool(name='echo')(lambda number: number).schema.name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "echo\n", done.stderr
