from tests.spark.test_partitioning import *  # noqa: F403
