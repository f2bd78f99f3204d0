from tests.spark.test_independent_readers import *  # noqa: F403
