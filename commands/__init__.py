"""What ``pagedeck COMMAND`` does, one file a command. Each imports what it needs only when it runs."""
