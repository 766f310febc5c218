"""What could be set better, and the evidence for it. No Qt: rules are functions of what was measured."""
