"""What is kept of Inductor's work between processes: functions, settings that it reads, and modules that it writes."""
