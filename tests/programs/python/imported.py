"""Allocates while it is imported."""

import gpu

gpu.touch()
VALUE = 5
