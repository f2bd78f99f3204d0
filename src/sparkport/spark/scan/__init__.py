"""Reading: which route a scan takes, and each route; filters and permissions of Spark queries."""
