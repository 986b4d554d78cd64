"""What can be seen in a minute: tables, hospitals as processes, servers on shares."""
