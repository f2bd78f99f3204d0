from tests.spark.test_noted_transactions import *  # noqa: F403
