"""Model that depends on the permission mode of the agent that uses it."""

from __future__ import annotations

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.model_requests import DeltaListener, ModelReply, ModelRequest
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.ports import Model


class PlanModeModel:
    """Pair of models, shared by agents in any mode: each selects its own for every request."""

    def __init__(self, name: str, *, planning: Model, other: Model) -> None:
        self.name = name
        """Name that means this pair, for other processes of the session."""
        self._planning = planning
        self._other = other

    @property
    def card(self) -> ModelCard:
        return self._other.card

    def select_model(self, mode: PermissionMode) -> Model:
        return self._planning if mode == "plan" else self._other

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        return await self._other.generate_reply(request, on_delta)

    async def aclose(self) -> None:
        await self._planning.aclose()
        await self._other.aclose()
