"""Identifiers, and the sources they come from."""

from __future__ import annotations

from shoal.core.ids import EntryId, Ids, is_uuid


def given(ids: Ids, count: int = 20) -> list[str]:
    return [each for _ in range(count) for each in (ids.uuid(), ids.agent(), ids.request(), ids.short())]


def test_a_seed_makes_everything_repeat() -> None:
    assert given(Ids(7)) == given(Ids(7))
    assert given(Ids(7).branch()) == given(Ids(7).branch())
    assert Ids(7).random.random() == Ids(7).random.random()
    assert given(Ids(7)) != given(Ids(8))
    assert given(Ids()) != given(Ids())


def test_no_source_gives_what_another_one_gave() -> None:
    root = Ids(7)
    sources = [root, Ids(8), root.beyond(EntryId("e-1")), root.beyond(EntryId("e-2"))]
    for _ in range(300):
        sources += (root.branch(), sources[-1].branch())
    seen = [source.uuid() for source in sources for _ in range(50)]
    assert len(set(seen)) == len(seen)
    assert all(is_uuid(each) for each in seen)


def test_what_a_branch_gives_changes_nothing_of_what_comes_after_it() -> None:
    busy, quiet = Ids(7), Ids(7)
    given(busy.branch())
    quiet.branch()
    assert given(busy) == given(quiet)
