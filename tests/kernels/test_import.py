"""The package beside the rest of the world: other libraries look for a package of its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pagedeck
import pytest

ROOT = Path(pagedeck.__file__).parent


@pytest.mark.parametrize(
    "program",
    [
        "import transformers; from transformers import LlamaConfig",
        "import sys; sys.modules['torch'] = None; import kernels; kernels.PagedBatch",
        "import kernels.reference, kernels.cpu, kernels.triton.ops; kernels.ops_for('cpu')",
    ],
)
def test_from_the_repository_root(program: str) -> None:
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
