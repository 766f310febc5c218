"""Codes of the map's indexed image, ordered by how much a viewer wants to see them: the largest of a group wins."""

from __future__ import annotations

CODE_VOID = 0  # beyond the pool's last block
CODE_DIMMED = 1  # filtered out by the legend
CODE_STATE = 2  # + BlockState
CODE_NEUTRAL = 8  # + BlockState, of blocks that another colouring than by state has nothing to say about
CODE_RAMP = 16  # + 0 … RAMP_STEPS - 1: ordered quantities
RAMP_STEPS = 64
CODE_CLASS = 80  # + 0 …: from the least urgent class to the most urgent
CODE_REQUEST = 96  # + 0 … REQUEST_COLOURS - 1
REQUEST_COLOURS = 24

#: Added to the code of a block that belongs to the traced request; the rest is drawn with the faded half.
CODE_TRACED = 128
