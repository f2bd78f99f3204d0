from tests.spark.test_upsert import *  # noqa: F403
