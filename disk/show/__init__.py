"""What people look at: pages in which skills run."""
