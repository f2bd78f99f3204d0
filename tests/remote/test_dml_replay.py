from tests.spark.test_dml_replay import *  # noqa: F403
