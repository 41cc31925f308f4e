"""Fields that the rules of shrink.py do not get right, by class of model."""

from __future__ import annotations

from typing import Any

OVER: dict[str, dict[str, Any]] = {}
