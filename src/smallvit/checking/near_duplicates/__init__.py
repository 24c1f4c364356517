"""Which pictures of a set are the same, exactly or nearly."""
