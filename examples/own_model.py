"""Uses your own function as the model. Try it: python examples/own_model.py"""

import shoal


def reply(request: shoal.ModelRequest) -> str:
    return f"You said: {request.messages[-1].text}"


print(shoal.run_sync("Hello", model=shoal.ScriptedModel(reply)).text)
