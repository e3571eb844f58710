"""What mmdb knows, in the forms that other tools read: events, tracking stores, cards, files."""
