from tests.spark.test_contract import *  # noqa: F403
