from tests.spark.test_maintenance import *  # noqa: F403
