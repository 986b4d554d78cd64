"""What servers compute on shares, in two trust settings."""
