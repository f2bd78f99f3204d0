"""Every statement of Spark's and Iceberg's grammars, by the name of its alternative there.

`{t}` stands for the table.
"""

from __future__ import annotations

__all__ = ["FORMS", "ICEBERG", "QUERIES", "STATEMENTS"]

STATEMENTS: dict[str, tuple[str, ...]] = {
    # dmlStatementNoWith
    "SingleInsertQuery": (
        "INSERT INTO {t} VALUES (666, 'evil')",
        "INSERT OVERWRITE {t} SELECT 666, 'evil'",
        "INSERT INTO {t} REPLACE WHERE id = 1 SELECT 666, 'evil'",
        "INSERT INTO TABLE {t} SELECT * FROM vault.gold",
        "INSERT OVERWRITE DIRECTORY '/tmp/evil' USING parquet SELECT 1 AS a",
        "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/evil' SELECT 1 AS a",
    ),
    "MultiInsertQuery": ("FROM t INSERT INTO {t} SELECT * INSERT INTO {t} SELECT *",),
    "DeleteFromTable": ("DELETE FROM {t}", "DELETE FROM {t} WHERE id = 1"),
    "UpdateTable": ("UPDATE {t} SET id = 666",),
    "MergeIntoTable": ("MERGE INTO {t} USING t AS s ON false WHEN NOT MATCHED THEN INSERT *",),
    # setResetStatement
    "FailSetRole": ("SET ROLE admin",),
    "SetConfiguration": (
        "SET spark.sql.ansi.enabled = false",
        "SET",
        "SET -v",
        "SET spark.sql.variable.substitute = true",
    ),
    "SetQuotedConfiguration": ("SET `spark.sql.ansi.enabled` = `false`",),
    "SetTimeZone": ("SET TIME ZONE 'Asia/Tokyo'", "SET TIME ZONE LOCAL"),
    "SetVariable": ("SET VAR x = 1", "SET VARIABLE x = (SELECT max(id) FROM vault.gold)"),
    "ResetConfiguration": ("RESET", "RESET spark.sql.ansi.enabled"),
    "ResetQuotedConfiguration": ("RESET `spark.sql.ansi.enabled`",),
    # statement
    "AddTableColumns": ("ALTER TABLE {t} ADD COLUMN w INT",),
    "AddTableConstraint": ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0)",),
    "AddTablePartition": ("ALTER TABLE {t} ADD PARTITION (id = 1)",),
    "AlterClusterBy": ("ALTER TABLE {t} CLUSTER BY (id)",),
    "AlterTableAlterColumn": ("ALTER TABLE {t} ALTER COLUMN id COMMENT 'evil'",),
    "AlterTableCollation": ("ALTER TABLE {t} DEFAULT COLLATION UTF8_LCASE",),
    "AlterViewQuery": ("ALTER VIEW {v} AS SELECT 666 AS id",),
    "AlterViewSchemaBinding": ("ALTER VIEW {v} WITH SCHEMA EVOLUTION",),
    "Analyze": (
        "ANALYZE TABLE {t} COMPUTE STATISTICS",
        "ANALYZE TABLE {t} COMPUTE STATISTICS FOR ALL COLUMNS",
    ),
    "AnalyzeTables": ("ANALYZE TABLES IN open COMPUTE STATISTICS",),
    "CacheTable": ("CACHE TABLE {t}", "CACHE LAZY TABLE evil AS SELECT * FROM vault.gold"),
    "Call": (
        "CALL system.rewrite_data_files('open.t')",
        "CALL system.expire_snapshots('vault.gold')",
        "CALL IDENTIFIER('system.rewrite_data_files')('open.t')",
    ),
    "ClearCache": ("CLEAR CACHE",),
    "CommentNamespace": ("COMMENT ON NAMESPACE {n} IS 'evil'",),
    "CommentTable": ("COMMENT ON TABLE {t} IS 'evil'",),
    "CreateFunction": (
        "CREATE TEMPORARY FUNCTION {f} AS 'org.apache.hadoop.hive.ql.udf.UDFLog2'",
        "CREATE TEMPORARY FUNCTION {f} AS 'Evil' USING JAR '/tmp/evil.jar'",
        "CREATE OR REPLACE FUNCTION {f} AS 'Evil'",
    ),
    "CreateIndex": ("CREATE INDEX i ON TABLE {t} (id)",),
    "CreateNamespace": ("CREATE NAMESPACE {e}", "CREATE DATABASE IF NOT EXISTS {e}"),
    "CreatePipelineDataset": (
        "CREATE MATERIALIZED VIEW {e} AS SELECT 1 AS a",
        "CREATE STREAMING TABLE {e}",
    ),
    "CreatePipelineInsertIntoFlow": ("CREATE FLOW f AS INSERT INTO {t} BY NAME SELECT * FROM t",),
    "CreateTable": (
        "CREATE TABLE {e} (id INT) USING iceberg",
        "CREATE TABLE {e} USING iceberg AS SELECT * FROM vault.gold",
        "CREATE TABLE {e} USING parquet LOCATION '/tmp/evil' AS SELECT 1 AS a",
        "CREATE TABLE IF NOT EXISTS {e} AS SELECT 1 AS a",
    ),
    "CreateTableLike": ("CREATE TABLE {e} LIKE {t}",),
    "CreateTempViewUsing": ("CREATE TEMPORARY VIEW evil USING text OPTIONS (path '/etc/passwd')",),
    "CreateUserDefinedFunction": (
        "CREATE TEMPORARY FUNCTION {f}() RETURNS INT RETURN 666",
        "CREATE FUNCTION {f}(x INT) RETURNS TABLE (a BIGINT) RETURN SELECT max(id) FROM vault.gold",
    ),
    "CreateVariable": ("DECLARE VARIABLE {e} INT DEFAULT 666", "DECLARE OR REPLACE x INT"),
    "CreateView": (
        "CREATE VIEW {e} AS SELECT * FROM vault.gold",
        "CREATE TEMPORARY VIEW {e} AS SELECT 666 AS id",
        "CREATE OR REPLACE TEMPORARY VIEW {t} AS SELECT 666 AS id, 'evil' AS v",
        "CREATE GLOBAL TEMPORARY VIEW evil AS SELECT 666 AS id",
    ),
    "DescribeFunction": ("DESCRIBE FUNCTION {f}", "DESCRIBE FUNCTION EXTENDED abs"),
    "DescribeNamespace": ("DESCRIBE NAMESPACE EXTENDED {n}",),
    "DescribeProcedure": ("DESCRIBE PROCEDURE system.rewrite_data_files",),
    "DescribeQuery": ("DESCRIBE QUERY SELECT * FROM vault.gold",),
    "DescribeRelation": ("DESCRIBE TABLE EXTENDED {t}", "DESCRIBE {t} AS JSON"),
    "DropFunction": ("DROP FUNCTION IF EXISTS {f}", "DROP TEMPORARY FUNCTION IF EXISTS {f}"),
    "DropIndex": ("DROP INDEX i ON TABLE {t}",),
    "DropNamespace": ("DROP NAMESPACE {n} CASCADE",),
    "DropTable": ("DROP TABLE {t}", "DROP TABLE IF EXISTS {t} PURGE"),
    "DropTableColumns": ("ALTER TABLE {t} DROP COLUMN v",),
    "DropTableConstraint": ("ALTER TABLE {t} DROP CONSTRAINT IF EXISTS c",),
    "DropTablePartitions": ("ALTER TABLE {t} DROP PARTITION (id = 1)",),
    "DropVariable": ("DROP TEMPORARY VARIABLE IF EXISTS x",),
    "DropView": ("DROP VIEW {v}", "DROP VIEW IF EXISTS {v}"),
    "Explain": (
        "EXPLAIN SELECT 1",
        "EXPLAIN EXTENDED SELECT * FROM vault.gold",
        "EXPLAIN INSERT INTO {t} VALUES (1, 'a')",
    ),
    "FailNativeCommand": ("CREATE ROLE evil", "GRANT SELECT ON t TO evil", "LOCK TABLE t"),
    "HiveChangeColumn": ("ALTER TABLE {t} CHANGE COLUMN id id BIGINT COMMENT 'evil'",),
    "HiveReplaceColumns": ("ALTER TABLE {t} REPLACE COLUMNS (id BIGINT)",),
    "LoadData": ("LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE {t}",),
    "ManageResource": (
        "ADD JAR '/tmp/evil.jar'",
        "ADD FILE '/etc/passwd'",
        "LIST JARS",
        "LIST FILES",
    ),
    "RecoverPartitions": ("ALTER TABLE {t} RECOVER PARTITIONS",),
    "RefreshFunction": ("REFRESH FUNCTION {f}",),
    "RefreshResource": ("REFRESH '/etc'",),
    "RefreshTable": ("REFRESH TABLE {t}",),
    "RenameTable": ("ALTER TABLE {t} RENAME TO open.evil", "ALTER VIEW {v} RENAME TO open.evil"),
    "RenameTableColumn": ("ALTER TABLE {t} RENAME COLUMN id TO evil",),
    "RenameTablePartition": ("ALTER TABLE {t} PARTITION (id = 1) RENAME TO PARTITION (id = 2)",),
    "RepairTable": ("MSCK REPAIR TABLE {t}",),
    "ReplaceTable": (
        "CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 1 AS id",
        "REPLACE TABLE {t} (id INT) USING iceberg",
    ),
    "SetCatalog": ("SET CATALOG spark_catalog", "SET CATALOG IDENTIFIER('spark_catalog')"),
    "SetNamespaceCollation": ("ALTER NAMESPACE {n} DEFAULT COLLATION UTF8_LCASE",),
    "SetNamespaceLocation": ("ALTER NAMESPACE {n} SET LOCATION '/tmp/evil'",),
    "SetNamespaceProperties": ("ALTER NAMESPACE {n} SET PROPERTIES ('evil' = '1')",),
    "SetTableLocation": ("ALTER TABLE {t} SET LOCATION '/tmp/evil'",),
    "SetTableProperties": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('evil' = '1')",
        "ALTER VIEW {v} SET TBLPROPERTIES ('evil' = '1')",
    ),
    "SetTableSerDe": ("ALTER TABLE {t} SET SERDEPROPERTIES ('evil' = '1')",),
    "ShowCatalogs": ("SHOW CATALOGS",),
    "ShowColumns": ("SHOW COLUMNS IN {t}",),
    "ShowCreateTable": ("SHOW CREATE TABLE {t}",),
    "ShowCurrentNamespace": ("SHOW CURRENT NAMESPACE",),
    "ShowFunctions": ("SHOW FUNCTIONS", "SHOW USER FUNCTIONS IN {n}"),
    "ShowNamespaces": ("SHOW NAMESPACES", "SHOW NAMESPACES IN {n}"),
    "ShowPartitions": ("SHOW PARTITIONS {t}",),
    "ShowProcedures": ("SHOW PROCEDURES",),
    "ShowTableExtended": ("SHOW TABLE EXTENDED IN {n} LIKE '*'",),
    "ShowTables": ("SHOW TABLES", "SHOW TABLES IN {n}"),
    "ShowTblProperties": ("SHOW TBLPROPERTIES {t}",),
    "ShowViews": ("SHOW VIEWS IN {n}",),
    "TruncateTable": ("TRUNCATE TABLE {t}",),
    "UncacheTable": ("UNCACHE TABLE IF EXISTS {t}",),
    "UnsetNamespaceProperties": ("ALTER NAMESPACE {n} UNSET PROPERTIES ('evil')",),
    "UnsetTableProperties": ("ALTER TABLE {t} UNSET TBLPROPERTIES ('format-version')",),
    "Use": ("USE spark_catalog", "USE {n}"),
    "UseNamespace": ("USE NAMESPACE {n}",),
    "VisitExecuteImmediate": (
        "EXECUTE IMMEDIATE 'SELECT * FROM vault.gold'",
        "EXECUTE IMMEDIATE 'INSERT INTO open.t VALUES (?, ?)' USING 666, 'evil'",
    ),
}

ICEBERG: dict[str, tuple[str, ...]] = {
    "AddPartitionField": ("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",),
    "CreateOrReplaceBranch": (
        "ALTER TABLE {t} CREATE BRANCH evil",
        "ALTER TABLE {t} CREATE OR REPLACE BRANCH evil",
    ),
    "CreateOrReplaceTag": ("ALTER TABLE {t} CREATE TAG evil",),
    "DropBranch": ("ALTER TABLE {t} DROP BRANCH IF EXISTS evil",),
    "DropIdentifierFields": ("ALTER TABLE {t} DROP IDENTIFIER FIELDS id",),
    "DropPartitionField": ("ALTER TABLE {t} DROP PARTITION FIELD id",),
    "DropTag": ("ALTER TABLE {t} DROP TAG IF EXISTS evil",),
    "ReplacePartitionField": ("ALTER TABLE {t} REPLACE PARTITION FIELD id WITH bucket(4, id)",),
    "SetIdentifierFields": ("ALTER TABLE {t} SET IDENTIFIER FIELDS id",),
    "SetWriteDistributionAndOrdering": ("ALTER TABLE {t} WRITE ORDERED BY id",),
}

QUERIES = frozenset({"StatementDefault", "DmlStatement"})
"""Alternatives of `statement` that are a query, or only introduce others."""

_NAMES = {"t": "open.t", "v": "open.w", "n": "open", "f": "evil", "e": "open.evil"}
_HIDDEN = {"t": "vault.gold", "v": "vault.w", "n": "vault", "f": "abs", "e": "vault.evil"}


def _spelt(names: dict[str, str], form: str) -> dict[str, str]:
    return {key: form.format(name) for key, name in names.items()}


def _in_text(statement: str) -> str:
    return "'" + statement.replace("\\", "\\\\").replace("'", "\\'") + "'"


FORMS = {
    "plain": lambda text: text.format(**_NAMES),
    "hidden": lambda text: text.format(**_HIDDEN),
    "identifier": lambda text: text.format(**_spelt(_NAMES, "IDENTIFIER('{}')")),
    "hidden identifier": lambda text: text.format(**_spelt(_HIDDEN, "IDENTIFIER('{}')")),
    "expression": lambda text: text.format(**_spelt(_NAMES, "IDENTIFIER('' || '{}')")),
    "function": lambda text: text.format(**_spelt(_NAMES, "IDENTIFIER(concat('{}'))")),
    "after WITH": lambda text: "WITH c AS (SELECT 1 AS id, 'x' AS v) " + text.format(**_NAMES),
    "after WITH, identifier": lambda text: (
        "WITH c AS (SELECT 1 AS id) " + text.format(**_spelt(_NAMES, "IDENTIFIER('{}')"))
    ),
    "after FROM": lambda text: "FROM open.t " + text.format(**_spelt(_NAMES, "IDENTIFIER('{}')")),
    "immediate": lambda text: "EXECUTE IMMEDIATE " + _in_text(text.format(**_NAMES)),
    "block": lambda text: f"BEGIN {text.format(**_NAMES)}; END",
    "explained": lambda text: f"EXPLAIN {text.format(**_NAMES)}",
    "in a query": lambda text: f"SELECT * FROM ({text.format(**_NAMES)})",
    "piped": lambda text: f"FROM open.t |> {text.format(**_NAMES)}",
}
