"""Constraints of tables: parsing, reviewing and computing their expressions, and enforcing them."""

from sparkport.engine.constraints.enforce import columns_of, concerning, enforce
from sparkport.engine.constraints.validate import parse_constraint, validate_constraints

__all__ = ["columns_of", "concerning", "enforce", "parse_constraint", "validate_constraints"]
