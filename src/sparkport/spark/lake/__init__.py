"""A lake: its objects, the states of its tables, history, transactions, staging and commits."""
