from tests.spark.test_time_travel import *  # noqa: F403
