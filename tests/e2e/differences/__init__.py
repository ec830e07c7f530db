"""A trial: nasty tables of a real database, and what a lake has of them, value by value."""
