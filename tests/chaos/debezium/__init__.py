"""PostgreSQL, a real Debezium and Headrace: the table here is the table there, whatever is killed."""
