"""PLACEHOLDER until the filters helper writes the real package (overwrite me)."""
from dataclasses import dataclass
@dataclass(frozen=True)
class Filter:
    expressions: tuple = ()
    json: str = ""
    columns: frozenset = frozenset()
class Evaluator:
    def __init__(self, f, schema, rowid_column=None): pass
    def apply(self, batch): return batch
