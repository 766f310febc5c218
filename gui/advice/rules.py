"""All rules, in the order in which their advice is shown."""

from __future__ import annotations

from .batch import Batch
from .budget import LargeBudget, SmallBudget
from .idle_host import IdleHost
from .pool import Pool
from .prefixes import Prefixes
from .rule import Rule
from .scattered import Scattered
from .swap import Swap
from .waste import Waste

RULES: tuple[Rule, ...] = (
    Swap(),
    Pool(),
    Batch(),
    SmallBudget(),
    LargeBudget(),
    Prefixes(),
    Waste(),
    Scattered(),
    IdleHost(),
)
