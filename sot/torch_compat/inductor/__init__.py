"""What is kept of Inductor's work between processes: settings that it depends on, and the modules that it writes."""
