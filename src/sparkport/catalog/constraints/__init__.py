"""Constraints of a table: what they are, and the framework's own code that enforces them."""

from sparkport.catalog.constraints.declare import ConstrainedTable, Constraints
from sparkport.catalog.constraints.enforce import columns_of, concerning, enforce
from sparkport.catalog.constraints.validate import parse_constraint, validate_constraints

__all__ = [
    "ConstrainedTable",
    "Constraints",
    "columns_of",
    "concerning",
    "enforce",
    "parse_constraint",
    "validate_constraints",
]
