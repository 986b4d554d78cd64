"""What servers do together for clients: noisy sums, and rounds of FedMTL."""
