"""What runs came to: statistics, tables and figures."""
