"""Predicates: the conditions of watchers, in a small language without loops whose cost is bounded."""

from hub_live.watchers.predicates.evaluation import Evaluator, Verdict
from hub_live.watchers.predicates.syntax import KEYWORDS, Predicate, parse

__all__ = ["KEYWORDS", "TICK_S", "Evaluator", "Predicate", "Verdict", "parse"]
