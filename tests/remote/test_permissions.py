from tests.spark.test_permissions import *  # noqa: F403
