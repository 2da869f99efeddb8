"""History from which a session starts: none, that of an earlier session, or a fork of one."""

from __future__ import annotations

from collections.abc import Container
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.options import Options
from shoal.app.settings.configured_store import open_configured_store
from shoal.app.settings.settings import Settings
from shoal.core.conversation.messages import Message
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.errors import SessionNotFound, SettingsError, StateFileError
from shoal.core.ids import LEAD_ID, EntryId, IdGenerator, SessionId, is_uuid
from shoal.core.store import SessionStore, Store
from shoal.stores.restored_conversation import restore_transcript
from shoal.stores.store_choice import open_member_session, open_temporary_store

if TYPE_CHECKING:
    from shoal.team.members.member_host import TeamMembership


class SessionHistory(Struct, frozen=True, kw_only=True):
    store: SessionStore
    messages: tuple[Message, ...] = ()
    last: EntryId | None = None
    interrupted: Message | None = None
    turns: int = 0
    delivered: frozenset[str] = frozenset()
    """Ids of all items that the lead received while it worked."""
    answered: Container[str] = frozenset()
    """Ids of its calls that have their own result."""
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    """Sentences about damaged files of the session."""

    @property
    def session(self) -> SessionId:
        return self.store.session


def choose_session_store(options: Options, settings: Settings, exit_stack: AsyncExitStack) -> Store:
    """Return the store of the options or settings, by default the files of the home directory.

    A session without persistence has its own store, which ends with it.
    """
    if options.persist:
        return open_configured_store(settings, options.store)
    return exit_stack.enter_context(open_temporary_store(settings.user.temporary_directory))


def open_resumable_store(options: Options, store: Store, settings: Settings) -> Store:
    """Return the store with earlier sessions; a session without persistence has its own, empty store."""
    return store if options.persist else open_configured_store(settings, options.store)


def open_session_history(
    options: Options, store: Store, settings: Settings, cwd: str, ids: IdGenerator
) -> SessionHistory:
    """Lock the session against other writers and read its messages."""
    if options.resume is None and not options.continue_last:
        new_session = store.create_session(_parse_session_id_option(options) or ids.new_session_id(), cwd=cwd)
        damage = new_session.report_damaged_files(now=options.clock.now())
        new_session.acquire_lock()
        return SessionHistory(store=new_session, damage=damage)
    session = _open_earlier_session(options, store, settings, cwd, ids)
    damage = session.report_damaged_files(now=options.clock.now())
    session.acquire_lock()
    try:
        loaded = _restore_lead_conversation(session, has_damage=bool(damage))
    except StateFileError:
        session.release_lock()
        raise
    return SessionHistory(
        store=session,
        messages=loaded.messages,
        last=loaded.last,
        interrupted=loaded.interrupted,
        turns=loaded.turns,
        delivered=loaded.delivered,
        answered=loaded.answered,
        notes=loaded.notes,
        damage=(*damage, *_describe_conversation_damage(session, loaded)),
    )


def _describe_conversation_damage(session: SessionStore, loaded: RestoredConversation) -> tuple[str, ...]:
    report = loaded.describe_damage(str(session.get_transcript_path(LEAD_ID) or "of the lead"))
    return (report,) if report else ()


def _restore_lead_conversation(session: SessionStore, *, has_damage: bool) -> RestoredConversation:
    """Restore the conversation; a damaged transcript may have been set aside."""
    try:
        return session.restore_conversation(LEAD_ID)
    except SessionNotFound:
        if has_damage:
            return restore_transcript(b"")
        raise


def open_member_history(membership: TeamMembership, store: Store, settings: Settings) -> SessionHistory:
    """Return the session of a teammate's process: the lead holds the lock and has the conversation."""
    return SessionHistory(
        store=open_member_session(store, membership, home=settings.home, durable=settings.own.durable)
    )


def _open_earlier_session(
    options: Options, store: Store, settings: Settings, cwd: str, ids: IdGenerator
) -> SessionStore:
    source = open_resumable_store(options, store, settings)
    found = source.find_latest_session(cwd) if options.resume is None else source.find_session(options.resume)
    if options.fork:
        return store.fork_session(found, _parse_session_id_option(options) or ids.new_session_id(), cwd=cwd)
    # A session without persistence continues in a copy, which ends with it.
    return found if options.persist else store.fork_session(found, found.session, cwd=cwd)


def _parse_session_id_option(options: Options) -> SessionId | None:
    if options.session_id is None:
        return None
    if not is_uuid(options.session_id):
        raise SettingsError(f"{options.session_id!r} is not a session id. Pass a UUID.")
    return SessionId(options.session_id)
