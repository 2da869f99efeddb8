"""Decorated tools: callable as before, as methods, with pydantic models and dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
