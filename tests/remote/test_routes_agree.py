from tests.spark.test_routes_agree import *  # noqa: F403
