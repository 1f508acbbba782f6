"""Published schedules that plan the future of every job, at work."""
