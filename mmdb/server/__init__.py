"""What runs inside the database; PL/Python bodies import from here."""
