from tests.spark.test_statistics import *  # noqa: F403
