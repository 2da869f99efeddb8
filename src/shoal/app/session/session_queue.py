"""Queue of a session and its sources besides people and agents: commands, hooks and schedules."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.app.hooks.agent_hooks import HookRegistry
from shoal.core.clock import Clock
from shoal.core.ids import IdGenerator
from shoal.runs.clock_scheduler import CronPromptScheduler
from shoal.runs.hook_notifier import HookNotifier
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.shell_notifier import BackgroundShellNotifier
from shoal.tools.shell_supervisor import BackgroundShellSupervisor

if TYPE_CHECKING:
    from shoal.app.session.session import Session


async def open_inbox_queue_and_scheduler(
    session: Session,
    shells: BackgroundShellSupervisor,
    hooks: HookRegistry,
    clock: Clock,
    ids: IdGenerator,
    exit_stack: AsyncExitStack,
) -> tuple[SharedInboxQueue, CronPromptScheduler]:
    queue = SharedInboxQueue(session.on_item_entered_conversation)
    notifier_ids = ids.derive_generator()
    shells.observer = BackgroundShellNotifier(queue, notifier_ids, session.emit_event)
    hooks.set_background_hook_notifier(HookNotifier(queue, notifier_ids, session.emit_event))
    await exit_stack.enter_async_context(hooks.runner.background)
    scheduler = CronPromptScheduler(
        queue=queue, clock=clock, ids=ids.derive_generator(), emit=session.emit_event
    )
    return queue, await exit_stack.enter_async_context(scheduler)
