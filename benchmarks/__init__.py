"""Performance measured on demand, apart from the tests."""
