from tests.spark.test_table_changes import *  # noqa: F403
