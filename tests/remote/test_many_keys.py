from tests.spark.test_many_keys import *  # noqa: F403
