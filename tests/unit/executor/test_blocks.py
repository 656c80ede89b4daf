from __future__ import annotations

import pytest

from executor.blocks import BlockPool


def test_allocate_takes_free_blocks_and_release_returns_them() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    assert len(set(blocks)) == 3
    assert (pool.num_free, pool.num_used) == (1, 3)
    assert pool.can_allocate(1)
    assert not pool.can_allocate(2)
    pool.release(blocks)
    assert (pool.num_free, pool.num_used) == (4, 0)


def test_release_keeps_a_block_while_somebody_shares_it() -> None:
    pool = BlockPool(2)
    [block] = pool.allocate(1)
    pool.share([block])
    pool.release([block])
    assert pool.num_used == 1
    pool.release([block])
    assert pool.num_used == 0


def test_allocate_prefers_what_was_freed_last() -> None:
    pool = BlockPool(8)
    first = pool.allocate(2)
    pool.release(first)
    assert set(pool.allocate(2)) == set(first)


def test_check_integrity_accepts_shared_blocks() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(2)
    pool.share(blocks[:1])
    pool.check_integrity([blocks, blocks[:1]])


@pytest.mark.parametrize("tables", [[], [[0, 0, 1, 2, 3]]], ids=["lost", "miscounted"])
def test_check_integrity_raises_with_numbers_when_tables_disagree(tables: list[list[int]]) -> None:
    pool = BlockPool(4)
    pool.allocate(4)
    with pytest.raises(RuntimeError, match=r"0 free \+ 4 used of 4; miscounted blocks: \["):
        pool.check_integrity(tables)
