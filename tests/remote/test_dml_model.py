from tests.spark.test_dml_model import *  # noqa: F403
