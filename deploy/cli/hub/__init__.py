"""Commands that ask the hub: devices, tokens, skills, broker logins; and joining one."""
