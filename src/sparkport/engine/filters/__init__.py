"""Evaluation of filters on Arrow batches, by DuckDB."""

from sparkport.engine.filters.evaluate import Evaluator

__all__ = ["Evaluator"]
