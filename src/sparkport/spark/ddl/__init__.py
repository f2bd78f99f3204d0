"""CREATE, ALTER and DROP, each as one commit."""
