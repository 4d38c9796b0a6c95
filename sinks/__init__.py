"""What keeps the answers: rows, migrations and the writer into ClickHouse."""
