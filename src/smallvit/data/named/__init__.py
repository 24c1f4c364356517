"""Sets that are known by name. Every function in this folder that is marked with @named is one."""
