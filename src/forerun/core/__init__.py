"""What every domain uses. Nothing here names a domain, or imports one."""
