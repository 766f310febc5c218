"""Peers from the nursery: each imports what an engine does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pagedeck.bench import peers

from ..nursery import Nursery


@pytest.fixture(scope="session", autouse=True)
def _peers_from_the_nursery(nursery: Nursery) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "subprocess", nursery)
        yield
