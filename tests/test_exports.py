"""The public names of `sparkport`: what is exported, and what importing it costs."""

import inspect
import re
import subprocess
import sys
import types

import pytest

import sparkport

_CLASSES_AND_FUNCTIONS = [
    name
    for name in sparkport.__all__
    if inspect.isclass(getattr(sparkport, name, None))
    or inspect.isroutine(getattr(sparkport, name, None))
    # Python 3.10 takes an alias such as Iterable[RecordBatch] for a class.
    if not isinstance(getattr(sparkport, name), types.GenericAlias)
]


def test_importing_sparkport_imports_neither_pyspark_nor_grpc():
    program = (
        "import sys, sparkport; "
        "print(*sorted({'grpc', 'pyspark', 'py4j', 'pyiceberg'} & sys.modules.keys()))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == ""


@pytest.mark.parametrize("name", sparkport.__all__)
def test_every_exported_name_exists(name):
    assert hasattr(sparkport, name)


def test_exported_names_are_sorted_and_unique():
    assert list(sparkport.__all__) == sorted(set(sparkport.__all__))


def test_the_root_has_what_most_programs_need_and_no_more():
    assert len(sparkport.__all__) <= 40
    assert sparkport.__all__ == [
        *("AlreadyExists", "Authenticator", "BadRequest", "Catalog", "CatalogBuilder"),
        *("Conflict", "ConstraintViolation", "Context", "Grant", "Identity"),
        *("LakeCatalog", "LakeSettings", "LakeSource", "LimitExceeded", "Mask"),
        *("MemoryCatalog", "MemorySettings", "MemoryTable", "NotFound", "NotWritable"),
        *("PermissionDenied", "Policy", "PreconditionFailed", "Privilege", "RowCount"),
        *("RowFilter", "ScanOptions", "Schema", "SchemaBuilder", "Server", "ServerSettings"),
        *("SparkportError", "Table", "TokenAuthenticator", "Unauthenticated", "Unsupported"),
        *("find_rowid_column", "serve"),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("StagedWrite", "sparkport.StagedWrite is in sparkport.catalog"),
        ("StaleDescriptor", "sparkport.StaleDescriptor is in sparkport.errors"),
        ("MemorySchema", "sparkport.MemorySchema is in sparkport.memory"),
        ("Limits", "no sparkport.Limits any more: sparkport.ServerSettings has them"),
        ("ServiceSettings", "no sparkport.ServiceSettings any more: sparkport.ServerSettings has"),
        ("Nonsense", "module 'sparkport' has no attribute 'Nonsense'"),
    ],
)
def test_who_looks_for_a_name_elsewhere_is_told_where_it_is(name, said):
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(sparkport, name)


def test_names_of_python_are_looked_for_without_importing_anything():
    program = "import sys, sparkport; hasattr(sparkport, '__x__'); print('pyarrow' in sys.modules)"

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "False"


def test_star_import_gives_the_exported_names():
    namespace: dict[str, object] = {}
    exec("from sparkport import *", namespace)

    assert set(sparkport.__all__) <= namespace.keys()


@pytest.mark.parametrize("name", _CLASSES_AND_FUNCTIONS)
def test_every_exported_class_and_function_has_a_docstring(name):
    docstring = getattr(sparkport, name).__doc__ or ""

    assert docstring.strip(), f"sparkport.{name} has no docstring"
    # dataclasses without one are given their signature
    assert not docstring.startswith(f"{name}("), f"sparkport.{name} has no docstring of its own"
