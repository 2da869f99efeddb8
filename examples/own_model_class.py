"""Uses your own class as the model, with streaming. Try it: python examples/own_model_class.py"""

import shoal


class EchoModel:
    card = shoal.ModelCard(id="echo", provider="own", price=shoal.TokenPrice(input=0, output=0))

    async def generate_reply(
        self, request: shoal.ModelRequest, on_delta: shoal.DeltaListener
    ) -> shoal.ModelReply:
        await on_delta(shoal.ModelAttemptStartedDelta())
        text = f"You said: {request.messages[-1].text}"
        await on_delta(shoal.TextDelta(text))
        message = shoal.Message(role="assistant", content=(shoal.TextBlock(text=text),))
        return shoal.ModelReply(message=message, usage=shoal.Usage(), stop_reason="end_turn", model="echo")

    async def aclose(self) -> None:
        pass


print(shoal.run_sync("Hello", model=EchoModel()).text)
