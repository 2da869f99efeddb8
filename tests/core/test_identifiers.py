"""Identifiers and their generators."""

from __future__ import annotations

from shoal.core.ids import EntryId, IdGenerator, is_uuid


def generate_ids(ids: IdGenerator, count: int = 20) -> list[str]:
    return [
        each
        for _ in range(count)
        for each in (ids.new_uuid(), ids.new_agent_id(), ids.new_request_id(), ids.new_short_id())
    ]


def test_the_same_seed_gives_the_same_ids() -> None:
    assert generate_ids(IdGenerator(7)) == generate_ids(IdGenerator(7))
    assert generate_ids(IdGenerator(7).derive_generator()) == generate_ids(IdGenerator(7).derive_generator())
    assert IdGenerator(7).random.random() == IdGenerator(7).random.random()
    assert generate_ids(IdGenerator(7)) != generate_ids(IdGenerator(8))
    assert generate_ids(IdGenerator()) != generate_ids(IdGenerator())


def test_no_two_generators_give_the_same_id() -> None:
    root = IdGenerator(7)
    sources = [
        root,
        IdGenerator(8),
        root.derive_for_resumed_session(EntryId("e-1")),
        root.derive_for_resumed_session(EntryId("e-2")),
    ]
    for _ in range(300):
        sources += (root.derive_generator(), sources[-1].derive_generator())
    seen = [source.new_uuid() for source in sources for _ in range(50)]
    assert len(set(seen)) == len(seen)
    assert all(is_uuid(each) for each in seen)


def test_a_derived_generator_does_not_change_its_parent() -> None:
    busy, quiet = IdGenerator(7), IdGenerator(7)
    generate_ids(busy.derive_generator())
    quiet.derive_generator()
    assert generate_ids(busy) == generate_ids(quiet)
