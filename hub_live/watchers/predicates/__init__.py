"""Predicates: the conditions of watchers, in a small language without loops whose cost is bounded."""

from hub_live.watchers.predicates.clock import CLOCK, UTC_CLOCK, Clock
from hub_live.watchers.predicates.evaluation import Evaluator, Verdict
from hub_live.watchers.predicates.syntax import KEYWORDS, Predicate, parse

__all__ = ["CLOCK", "KEYWORDS", "UTC_CLOCK", "Clock", "Evaluator", "Predicate", "Verdict", "parse"]
