"""Lets the tests import the modules beside them, which programs started by the tests import too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
