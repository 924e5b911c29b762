"""What all routes share: reading requests and bodies, writing answers and problems."""
