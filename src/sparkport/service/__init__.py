"""A decoded request becomes catalog calls: generators of bytes, no sockets."""
